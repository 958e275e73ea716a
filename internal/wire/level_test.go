package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Below the level of an operation a command is what it is to a build that skips the operation.
func TestCommandAt(t *testing.T) {
	lock := must(proto.Marshal(&Command{Op: &Command_Lock{Lock: &Lock{Name: "x"}}}))
	client := must(proto.Marshal(&Command{Op: &Command_RegisterClient{RegisterClient: &RegisterClient{Ttl: 1}}}))
	renew := must(proto.Marshal(&Command{Op: &Command_RenewClients{RenewClients: &RenewClients{}}}))
	number := []byte{0xb8, 1, 7} // of the first operation's number, with another type
	group := []byte{0xc3, 1, 0xc4, 1}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, row := range []struct{ data, want []byte }{
		{nil, nil},
		{lock, lock},
		{client, nil},
		{join(renew, client, number, group), nil},
		{join(lock, client, lock), join(lock, lock)},
		{join(client, lock, renew), lock},
		{join(lock, client, []byte{0xff}), join(lock, client, []byte{0xff})},
		{join(client[:len(client)-1]), client[:len(client)-1]},
	} {
		sent := bytes.Clone(row.data)
		if got := CommandAt(LevelClient-1, row.data); !bytes.Equal(got, row.want) {
			t.Errorf("%x: %x, want %x", row.data, got, row.want)
		}
		if got := CommandAt(LevelClient, row.data); !bytes.Equal(got, row.data) || !bytes.Equal(sent, row.data) {
			t.Errorf("at the level %x became %x", row.data, got)
		}
	}
	create := must(proto.Marshal(&Command{Op: &Command_CreateSession{CreateSession: &CreateSession{}}}))
	revive := must(proto.Marshal(&Command{Op: &Command_RenewSession{RenewSession: &RenewSession{}}}))
	crashed := must(proto.Marshal(&Command{Op: &Command_ReportProcess{ReportProcess: &ReportProcess{}}}))
	if got := CommandAt(LevelProcess-1, join(crashed, lock)); !bytes.Equal(got, lock) {
		t.Errorf("below the level of reports on processes: %x, want %x", got, lock)
	}
	downgrade := must(proto.Marshal(&Command{Op: &Command_Downgrade{Downgrade: &Downgrade{Name: "x"}}}))
	standalone := join(client, create, lock, revive)
	all := join(standalone, downgrade)
	for level, want := range map[uint32][]byte{
		LevelClient - 1: lock, LevelClient: join(client, lock), LevelStandalone: standalone, LevelShared - 1: standalone, LevelShared: all,
	} {
		if got := CommandAt(level, all); !bytes.Equal(got, want) {
			t.Errorf("at level %d: %x, want %x", level, got, want)
		}
	}
}

// An ID is read as it is printed, and in no other form.
func TestID_UnmarshalText(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for range 1000 {
		var want, got ID
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		if err := got.UnmarshalText(must(want.MarshalText())); err != nil || got != want {
			t.Fatalf("%v was read as %v, %v", want, got, err)
		}
	}
	const good = "0a000000-0000-0000-0000-00000000000b"
	for _, text := range []string{
		"", "-", good[1:], good + "0", good + "-", "0A" + good[2:], "{" + good + "}", "0a0000000000000000000000000000000b", "0a00000000-00-0000-0000-00000000000b",
		"g" + good[1:], good[:35] + "g", " " + good,
	} {
		got := ID{1}
		if err := got.UnmarshalText([]byte(text)); err == nil || got != (ID{1}) {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}
