package wire

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Lock has a bound with the room for a cycle only if it asks for the refusal, whatever else it has and in whatever order its fields come.
func TestOutcomeBound_Lock(t *testing.T) {
	encoded := func(l *Lock) []byte { return must(EncodeCommand(&Command{Op: &Command_Lock{Lock: l}})) }
	wrap := func(fields ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, opLock, protowire.BytesType), slices.Concat(fields...))
	}
	flag := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 1)
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x")
	small, large := TicketBytes+outcomeBytes, TicketBytes+outcomeBytes+MaxCycleBytes
	for what, row := range map[string]struct {
		command []byte
		want    int
	}{
		"plain":                          {encoded(&Lock{Name: "a", Wait: true}), small},
		"with the byte of the tag":       {encoded(&Lock{Name: "x\x01x", Label: []byte("x\x01"), Handle: 120, Wait: true}), small},
		"refusing":                       {encoded(&Lock{Name: "a", Wait: true, RefuseDeadlock: true}), large},
		"refusing, long":                 {encoded(&Lock{Name: strings.Repeat("x", 512), Value: []byte("x"), Share: 1 << 63, RefuseDeadlock: true}), large},
		"in another order":               {wrap(flag, name), large},
		"by a second operation":          {append(wrap(name), wrap(flag)...), large},
		"by another true":                {wrap(name, protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 2)), large},
		"truncated":                      {wrap(name, flag)[:5], small},
		"an Unlock with bytes like that": {must(EncodeCommand(&Command{Op: &Command_Unlock{Unlock: &Unlock{Name: "x\x01"}}})), small},
	} {
		if got := OutcomeBound(row.command); got != row.want {
			t.Errorf("%s: %d, want %d", what, got, row.want)
		}
	}
}
