// One candidate of client-go's leader election, with the timings that its users usually take (15 s, 10 s, 2 s).
// It is the peer that the coordinator is measured beside.
//
// Each change is one line of JSON on standard output: {"at": seconds since 1970, "id": …, "event": …}.
//
//	leading     it believes that it leads
//	newLeader   it saw "leader" in the Lease
//	gap         while it led, its work stood still for "seconds", and then went on
//	stopped     it no longer believes that it leads
//	exit        it ends
//
// SIGTERM ends it; with -release (the default) it gives the Lease back first.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

type line struct {
	At      float64 `json:"at"`
	ID      string  `json:"id"`
	Event   string  `json:"event"`
	Leader  string  `json:"leader,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

type reporter struct {
	id   string
	lock sync.Mutex
	out  *json.Encoder
}

func (r *reporter) say(l line) {
	r.lock.Lock()
	defer r.lock.Unlock()
	l.At, l.ID = float64(time.Now().UnixMicro())/1e6, r.id
	_ = r.out.Encode(l)
}

// work goes on until ctx ends, and notices when it was kept from it.
func (r *reporter) work(ctx context.Context, every time.Duration) {
	r.say(line{Event: "leading"})
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// Without the monotonic reading: that one may stand still together with the process.
	last := time.Now().Round(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now().Round(0)
			if gap := now.Sub(last); gap > time.Second {
				r.say(line{Event: "gap", Seconds: gap.Seconds()})
			}
			last = now
		}
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file (required)")
	contextName := flag.String("context", "", "context in it; default its current one")
	id := flag.String("id", "a", "identity of this candidate")
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	name := flag.String("name", "peer", "name of the Lease")
	release := flag.Bool("release", true, "give the Lease back at the end (ReleaseOnCancel)")
	lease := flag.Duration("lease", 15*time.Second, "LeaseDuration")
	deadline := flag.Duration("deadline", 10*time.Second, "RenewDeadline")
	retry := flag.Duration("retry", 2*time.Second, "RetryPeriod")
	flag.Parse()
	if *kubeconfig == "" {
		return fmt.Errorf("-kubeconfig is required: no other cluster is looked for")
	}

	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: *kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: *contextName},
	).ClientConfig()
	if err != nil {
		return fmt.Errorf("%s: %w", *kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("%s: %w", *kubeconfig, err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := &reporter{id: *id, out: json.NewEncoder(os.Stdout)}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *id},
		},
		LeaseDuration:   *lease,
		RenewDeadline:   *deadline,
		RetryPeriod:     *retry,
		ReleaseOnCancel: *release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { r.work(ctx, 20*time.Millisecond) },
			OnStoppedLeading: func() { r.say(line{Event: "stopped"}) },
			OnNewLeader:      func(leader string) { r.say(line{Event: "newLeader", Leader: leader}) },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	r.say(line{Event: "exit"})
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
