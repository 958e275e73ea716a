package grouptest

import (
	"fmt"
	"testing"

	"github.com/conclave-go/conclave"
)

// Close of a client waits for functions of the application that never return once, however many further groups the client is connected to.
func TestApplication_BlocksBesideGroups(t *testing.T) {
	for name, prepare := range map[string]func(h *hosted, c *conclave.Client){
		"connected": func(h *hosted, c *conclave.Client) {
			for i := range 4 {
				MustLock(h.T, c.WithGroup(fmt.Sprint("tenant-", i)).FencedLock("x"))
			}
		},
		"connecting": func(h *hosted, c *conclave.Client) {
			h.client.Block(func(name string) bool { return name == "Dial" })
			for i := range 4 {
				_, err := c.WithGroup(fmt.Sprint("tenant-", i)).FencedLock("x").TryLock(Within(h.T, BubbleElection))
				WantError(h.T, err, conclave.ErrUnavailable)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHostedBubble(t, func(h *hosted) {
				for i := range 4 {
					_, err := h.Nodes[0].CreateGroup(Bounded(h.T), fmt.Sprint("tenant-", i), conclave.GroupConfig{})
					Must(h.T, err)
				}
				c, err := conclave.Dial(Bounded(h.T), h.clientConfig(h.client, 0))
				Must(h.T, err)
				prepare(h, c)
				h.client.Block(everything)
				h.wantCloses(c, longestClientClose)
				h.release()
			})
		})
	}
}

// While all functions of the application return, Close of a client takes no time, however many further groups it is connected to: connections that the
// application's Dial has made are read until they end.
func TestApplication_ClosesBesideGroups(t *testing.T) {
	t.Parallel()
	inHostedBubble(t, func(h *hosted) {
		c, err := conclave.Dial(Bounded(h.T), h.clientConfig(h.client, 0))
		Must(h.T, err)
		for i := range 4 {
			tenant, err := c.CreateGroup(Bounded(h.T), fmt.Sprint("tenant-", i), conclave.GroupConfig{})
			Must(h.T, err)
			MustLock(h.T, tenant.FencedLock("x"))
		}
		h.wantCloses(c, BubbleElection)
	})
}
