package forming

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Only an address in Config.Join may be another name of the process that answers there.
func TestSearch_ConfiguredAddressesMayDiffer(t *testing.T) {
	f := newFounders(t, 1, 1, 2).founders[0]
	f.cfg.Join = []string{"configured"}
	f.candidates = newCandidates(f.addr(), f.cfg.Join)
	for _, addr := range []string{"configured", "heard"} {
		f.candidates.hear(addr, 7)
	}
	var dialed []transport.Target
	f.port.form = func(_ context.Context, to transport.Target, _ *wire.FormRequest) (*wire.FormReply, error) {
		dialed = append(dialed, to)
		return nil, errors.New("no answer in this test")
	}
	addrs, _ := f.candidates.due(time.Time{})
	for _, addr := range addrs {
		f.ask(t.Context(), addr)
	}
	if want := []transport.Target{{Addr: "configured"}, {Addr: "heard", Advertised: true}}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %+v, want %+v", dialed, want)
	}
	dialed = nil
	founder := &wire.Founder{Member: 7, Advertise: "seven"}
	_, _ = f.requestAcceptance(t.Context(), founder, &wire.Proposal{}) // it is not answered
	if want := []transport.Target{{Addr: "seven", Member: 7, Advertised: true}}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %+v for a founder, want %+v", dialed, want)
	}
}
