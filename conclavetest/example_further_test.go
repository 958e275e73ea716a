package conclavetest_test

import (
	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

// What does a program do when the leader of its tenant's group fails, which leads no other group perhaps?
func ExampleGroup_LeaderOf() {
	ctx := t.Context()
	group := conclavetest.Start(t, 3)
	if _, err := group.Node(0).CreateGroup(ctx, "tenant-7", conclave.GroupConfig{}); err != nil {
		t.Fatal(err)
	}

	failed := group.LeaderOf("tenant-7")
	group.Kill(failed)

	node := group.Node(group.LeaderOf("tenant-7")) // another one
	if _, err := node.WithGroup("tenant-7").FencedLock("invoices").Lock(ctx); err != nil {
		t.Fatal(err)
	}
}
