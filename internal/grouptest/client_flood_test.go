package grouptest

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// Clients that flood a member do not keep the commands of its other clients from the log. They are
// not even registered, and one of the kinds that they send is urgent. In short mode, which the race detector's run uses, their
// commands are small: for each large buffer the detector's own memory has page faults, which leave the members no processor.
func TestClient_FloodStarvesNoOther(t *testing.T) {
	g := Start(t, 3)
	lead := g.Leader()
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes[lead])
	sizes := []int{1<<20 - 1000, 100 << 10, 10 << 10, 1 << 10, 100, 10, 0, 0}
	if testing.Short() {
		sizes = sizes[2:]
	}
	for _, urgent := range []bool{false, false, true, true} {
		key := hostile.NewKey()
		conn, refusal, err := hostile.Connect(g.Nodes[lead].Addr(), key, hostile.ClientHello(key, "conclave"))
		if err != nil || refusal != "" {
			t.Fatal(refusal, err)
		}
		defer conn.Close()
		Must(t, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}))
		go func() {
			for {
				if _, err := conn.Receive(); err != nil {
					return
				}
			}
		}()
		go func() {
			for seq := uint64(1); ; {
				for _, size := range sizes {
					s := &wire.Submission{Urgent: urgent, Calls: []*wire.Call{{Seq: seq, Command: make([]byte, size)}}}
					if conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: s}}) != nil {
						return
					}
					seq++
				}
			}
		}()
	}
	Pass(2 * time.Second)
	for range 5 {
		if _, err := c.KV().Put(Bounded(t), "k", nil); err != nil {
			t.Error(err)
		}
	}
}
