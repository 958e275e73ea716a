package conclave_test

import (
	"context"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleNode_Explain() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	recordLabels(ctx, node)

	lock := node.FencedLock("invoices", conclave.WithLabel("invoice run 2026-11"))
	if _, err := lock.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fence, waiting := make(chan conclave.Fence), node.FencedLock("invoices", conclave.WithLabel("correction"))
	go func() {
		f, _ := waiting.Lock(ctx)
		fence <- f
	}()
	awaitWaiter(ctx, waiting)

	e, err := node.Explain(ctx, "invoices")
	if err != nil {
		log.Fatal(err)
	}
	if e.Held {
		fmt.Println("held by", e.Holder.Label, "alive:", e.Holder.Alive)
	}
	for i, w := range e.Queue {
		fmt.Println("place", i+1, "in the queue:", w.Label, "alive:", w.Alive)
	}
	if e.Cycle != nil {
		fmt.Println("possible deadlock:", e.Cycle)
	}
	if err := node.CloseSession(ctx, e.Holder.Session); err != nil { // by force
		log.Fatal(err)
	}
	fmt.Println("granted with a larger fence:", <-fence > e.Fence)
	// Output:
	// held by invoice run 2026-11 alive: true
	// place 1 in the queue: correction alive: true
	// granted with a larger fence: true
}

// recordLabels waits until the new group has agreed to record labels, about a second.
func recordLabels(ctx context.Context, node *conclave.Node) {
	for recorded := false; !recorded; {
		err := node.FencedLock("probe", conclave.WithLabel("probe")).Do(ctx, func(context.Context, conclave.Fence) error {
			e, err := node.Explain(ctx, "probe")
			recorded = e.Holder.Label == "probe"
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
}

// awaitWaiter waits until a handle waits for the lock.
func awaitWaiter(ctx context.Context, l *conclave.FencedLock) {
	for {
		info, err := l.Info(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if info.Waiters > 0 {
			return
		}
	}
}

func ExampleNode_WaitCycles() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	cycles, err := node.WaitCycles(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range cycles {
		fmt.Println("possible deadlock:", c)
	}
	fmt.Println(len(cycles), "cycles")
	// Output: 0 cycles
}
