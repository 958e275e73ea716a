package virtualtime

import (
	"encoding/binary"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

var stateMiB = flag.Int("state", 9, "MiB of state that a member catches up with")

// A member that was away catches up with a state that takes the link several seconds,
// while the others write: once by one snapshot if the link is twice as fast as they
// write. The ratios are those of 150 MiB over 25 MB/s with 3 MiB/s written, and of twice
// as fast a link; everything is divided by some 16, the retention of the log more. -state 150
// runs it in full.
func TestCatchUp_UnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("writes tens of MB, which takes the race detector a minute")
	}
	const value = 32 << 10
	values := *stateMiB << 20 / value
	link := *stateMiB * 1_000_000 / 6 // bytes a second
	for name, written := range map[string]int{"an eighth of the link": link / 8, "half of the link": link * 45 / 100} {
		t.Run(name, func(t *testing.T) {
			retention := grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.KeepEntries = 5 })
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				leader := g.Leader()
				away, other := (leader+1)%3, (leader+2)%3
				g.Kill(away)
				kv := g.Nodes[other].KV()
				put := func(i int) {
					data := make([]byte, value)
					binary.BigEndian.PutUint64(data, uint64(i))
					_, err := kv.Put(g.T.Context(), fmt.Sprint("key-", i%values), data)
					grouptest.Must(g.T, err)
				}
				for i := range values {
					put(i)
				}
				g.Net.Throttle(leader, away, link)
				g.Net.Throttle(other, away, link)
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					pace := time.NewTicker(time.Second * value / time.Duration(written))
					defer pace.Stop()
					for i := values; ; i++ {
						select {
						case <-stop:
							return
						case <-pace.C:
							put(i)
						}
					}
				}()
				defer func() { close(stop); <-stopped }()
				began := time.Now()
				g.Start(away)
				g.AwaitApplied(away)
				g.WantInstalled(away, 1)
				t.Logf("caught up within %v", time.Since(began))
			}, retention)
		})
	}
}
