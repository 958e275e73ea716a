package gossip

import (
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// The build is left out where a name and an address fill what memberlist has room for: a member that has started with them
// before starts still.
func TestEncodeMeta_Room(t *testing.T) {
	build := strings.Repeat("v", 64)
	meta := func(address int) *wire.GossipMeta {
		return &wire.GossipMeta{Version: wire.GossipVersion, Member: 7, Boot: 1, Name: "seven", Advertise: strings.Repeat("a", address), Build: build, FeatureLevel: 6}
	}
	for _, test := range []struct {
		address int
		build   string
		fits    bool
	}{{200, build, true}, {420, build, true}, {450, "", true}, {600, "", false}} {
		body, err := EncodeMeta(meta(test.address))
		if (err == nil) != test.fits {
			t.Errorf("%d bytes: %v", test.address, err)
		}
		if err != nil {
			continue
		}
		got := new(wire.GossipMeta)
		if err := wire.Decode(body, got); err != nil || len(body) > memberlist.MetaMaxSize {
			t.Errorf("%d bytes: %d in gossip, %v", test.address, len(body), err)
		}
		if got.GetBuild() != test.build || len(got.GetAdvertise()) != test.address || got.GetFeatureLevel() != 0 {
			t.Errorf("%d bytes: %v", test.address, got)
		}
	}
}
