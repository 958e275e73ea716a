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
	if _, err := node.FencedLock("invoices").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fence, waiting := make(chan conclave.Fence), node.FencedLock("invoices")
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
		fmt.Println("held under fence", e.Fence, "alive:", e.Holder.Alive)
	}
	for i, w := range e.Queue {
		fmt.Println("place", i+1, "in the queue, alive:", w.Alive)
	}
	if e.Cycle != nil {
		fmt.Println("possible deadlock:", e.Cycle)
	}
	if err := node.CloseSession(ctx, e.Holder.Session); err != nil { // by force
		log.Fatal(err)
	}
	fmt.Println("then held under fence", <-fence)
	// Output:
	// held under fence 1 alive: true
	// place 1 in the queue, alive: true
	// then held under fence 2
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
