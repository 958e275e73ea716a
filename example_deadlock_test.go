package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleRefuseDeadlock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	session := newTask(ctx, node)

	from := session.FencedLock("account/17", conclave.RefuseDeadlock())
	to := session.FencedLock("account/4", conclave.RefuseDeadlock())
	if _, err := from.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	other := transferBack(ctx, newTask(ctx, node))
	awaitWaiter(ctx, from)

	var deadlock *conclave.DeadlockError
	if _, err := to.Lock(ctx); errors.As(err, &deadlock) {
		fmt.Println("not waiting for", deadlock.Cycle[0].Lock, "in a cycle of", deadlock.Sessions)
		_ = from.Unlock(ctx) // and begin again
	}
	fmt.Println("the other task:", <-other)
	// Output:
	// not waiting for account/4 in a cycle of 2
	// the other task: <nil>
}

// newTask opens a session that stands for one task.
func newTask(ctx context.Context, node *conclave.Node) *conclave.Session {
	s, err := node.NewSession(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// transferBack locks the accounts in the other order. It returns when it holds the first one.
func transferBack(ctx context.Context, s *conclave.Session) <-chan error {
	if _, err := s.FencedLock("account/4").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	locked := make(chan error)
	go func() {
		_, err := s.FencedLock("account/17", conclave.RefuseDeadlock()).Lock(ctx)
		locked <- err
	}()
	return locked
}
