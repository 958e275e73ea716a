package conclavehttp_test

import (
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// With a further group the page has an overview of all, with the names as they can be shown.
func TestConsole_OverviewOfGroups(t *testing.T) {
	n := grouptest.Alone(t)
	wantNot(t, serve(t, n, nil).page(), "<h3>Groups</h3>")
	for _, name := range []string{"tenant", "<b>\u202e"} {
		_, err := n.CreateGroup(t.Context(), name, conclave.GroupConfig{})
		grouptest.Must(t, err)
	}
	body := serve(t, n, nil).page()
	want(t, body, "<h3>Groups</h3>", "the default group, of this page", "<bdi><b>tenant</b></bdi>", "number 1</small>", `<bdi><b>&lt;b&gt;\u202e</b></bdi>`)
	wantNot(t, body, `<span class="state bad">none</span>`)
	grouptest.Must(t, n.Close(t.Context()))
	wantNot(t, serve(t, n, nil).page(), "<h3>Groups</h3>")
}
