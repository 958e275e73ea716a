package grouptest

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// FailedChecks returns the names of the checks of a node's health that fail, and their texts.
func FailedChecks(n *conclave.Node) (names, texts string) { return failedIn(n.Health()) }

func failedIn(h conclave.Health) (names, texts string) {
	var name, text []string
	for _, c := range h.Reasons {
		if !c.OK {
			name, text = append(name, c.Name), append(text, c.Text)
		}
	}
	return strings.Join(name, " "), strings.Join(text, "\n")
}

// AwaitHealth blocks until exactly these checks of a node's health fail, and returns their
// texts.
func AwaitHealth(t testing.TB, n *conclave.Node, failed string) (texts string) {
	t.Helper()
	var names string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); Pass(10 * time.Millisecond) {
		if names, texts = FailedChecks(n); names == failed {
			return texts
		}
	}
	t.Fatalf("failed checks %q (%s); want %q", names, texts, failed)
	return ""
}

// WantHealth checks what decides on restarts and on traffic.
func WantHealth(t testing.TB, n *conclave.Node, live, ready bool) {
	t.Helper()
	if h := n.Health(); h.Live != live || h.Ready != ready {
		t.Fatalf("%+v; want live %v, ready %v", h, live, ready)
	}
}
