package conclave_test

import (
	"context"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleNode_CreateGroup() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	if err := lockOfTenant(ctx, node); err != nil {
		log.Fatal(err)
	}
	for group, err := range node.Groups(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(group.Number, group.Name)
	}
	// Output:
	// 0 conclave
	// 1 tenant-7
}

// storeInvoices is what the lock protects: the store checks the fence.
func storeInvoices(conclave.Fence) error { return nil }

func lockOfTenant(ctx context.Context, node *conclave.Node) error {
	tenant, err := node.CreateGroup(ctx, "tenant-7", conclave.GroupConfig{}) // once; idempotent
	if err != nil {
		return err
	}
	fence, err := tenant.FencedLock("invoices").Lock(ctx)
	if err != nil {
		return err
	}
	return storeInvoices(fence)
}
