package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// numberedDisk is roomyDisk at the level of numbers: x has a permit that is held with two numbers, and one that is
// delayed with one, which is remembered; of y a free number is.
func numberedDisk() disk {
	d := roomyDisk()
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: wire.LevelSlots, Now: 1, Fences: 6, Positions: 5, Changes: 9})
	d["px\x00"+be(3)] = marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 2, Slots: []uint32{1, 4}})
	d["px\x00"+be(4)] = marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5, Slots: []uint32{2}})
	d["nx\x00"+be(2)] = marshalled(&wire.SlotState{Session: "a", Position: 4})
	d["ny\x00"+be(0)] = marshalled(&wire.SlotState{Session: "b", Position: 2})
	return d
}

func TestLoad_Slots(t *testing.T) {
	held := func(n uint32, slots ...uint32) []byte {
		return marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: n, Slots: slots})
	}
	delayed := func(slots ...uint32) []byte {
		return marshalled(&wire.PermitState{Permits: uint32(len(slots)), DelayUntil: 5, Slots: slots})
	}
	slot := func(session string, position uint64) []byte {
		return marshalled(&wire.SlotState{Session: session, Position: position})
	}
	many := make([]uint32, MaxSlots+1)
	for i := range many {
		many[i] = 100 + uint32(i)
	}
	for _, row := range []struct {
		name, key string
		value     []byte
		want      string // of the error; "": none
	}{
		{"nothing else", "ky", numberedDisk()["ky"], ""},
		{"numbers beyond the limit", "py\x00" + be(5), held(2, 7, MaxPermits-1), ""},
		{"a permit without numbers", "py\x00" + be(5), held(2), ""},
		{"fewer numbers than permits", "py\x00" + be(5), held(3, 1, 2), "range"},
		{"more numbers than permits", "py\x00" + be(5), held(1, 1, 2), "range"},
		{"the most numbers", "py\x00" + be(5), held(MaxSlots, many[1:]...), ""},
		{"too many numbers", "py\x00" + be(5), held(MaxSlots+1, many...), "range"},
		{"a number that is too large", "py\x00" + be(5), held(1, MaxPermits), "range"},
		{"a permit with one number twice", "py\x00" + be(5), held(2, 3, 3), "range"},
		{"descending numbers", "py\x00" + be(5), held(2, 3, 2), "range"},
		{"two holders of one number", "px\x00" + be(5), held(2, 0, 4), "duplicate"},
		{"a holder and a lock-delay with one number", "px\x00" + be(5), held(1, 2), "duplicate"},
		{"two lock-delays with one number", "px\x00" + be(5), delayed(2), "duplicate"},
		{"one number of two semaphores", "py\x00" + be(5), held(1, 4), ""},
		{"one that is held and remembered", "py\x00" + be(5), held(1, 0), "duplicate"},
		{"one that is delayed and remembered", "py\x00" + be(5), delayed(0), ""},

		{"another that is remembered", "nx\x00" + be(9), slot("b", 7), ""},
		{"one that is remembered of an unknown semaphore", "nz\x00" + be(9), slot("b", 7), "not exist"},
		{"one that is remembered of no session", "nx\x00" + be(9), slot("", 7), "range"},
		{"one that is remembered of too long a name", "nx\x00" + be(9), slot(strings.Repeat("x", MaxName+1), 7), "range"},
		{"one that is remembered in no position", "nx\x00" + be(9), slot("b", 0), "range"},
		{"one that is remembered in the position of another", "nx\x00" + be(9), slot("b", 4), "range"},
		{"one that is remembered and too large", "nx\x00" + be(MaxPermits), slot("b", 7), "range"},
		{"one that is remembered under a shorter key", "nx", slot("b", 7), "length"},
		{"a malformed one", "nx\x00" + be(9), []byte{0xff}, "n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := numberedDisk()
			d[row.key] = row.value
			loadNumbered(t, d, row.want)
		})
	}
}

// loadNumbered loads a state at the level of numbers, and what is fine there below it.
func loadNumbered(t *testing.T, d disk, want string) {
	t.Helper()
	if !checkLoad(t, d, want) {
		return
	}
	st := new(wire.MachineState)
	if err := proto.Unmarshal(d["m"], st); err != nil {
		t.Fatal(err)
	}
	st.FeatureLevel = wire.LevelSlots - 1
	d["m"] = marshalled(st)
	for _, kind := range []string{"n", "p"} { // each by itself is one too many
		below := disk{}
		for k, v := range d {
			if k[:1] != kind {
				below[k] = v
			}
		}
		if kind == "p" {
			below["px\x00"+be(3)], below["px\x00"+be(4)] = roomyDisk()["px\x00"+be(3)], roomyDisk()["px\x00"+be(4)]
		}
		if m, err := Load(below.pairs()); m != nil || !errors.Is(err, ErrCorrupt) {
			t.Errorf("Load below the level, without %s: %v", kind, err)
		}
	}
}

// More is stored than is remembered: of one semaphore, or of all.
func TestLoad_TooManyRemembered(t *testing.T) {
	for _, row := range []struct {
		semaphores, each, name int
		fits                   bool
	}{
		{1, slots.MaxFormer, 1, true},
		{1, slots.MaxFormer + 1, 1, false},
		{4, 455, MaxName, true}, // of 576 bytes
		{4, 456, MaxName, false},
	} {
		d := numberedDisk()
		delete(d, "nx\x00"+be(2))
		delete(d, "ny\x00"+be(0))
		position := uint64(0)
		for i := range row.semaphores {
			name := fmt.Sprint("many/", i)
			d["S"+name] = marshalled(&wire.SemaphoreState{Limit: 3, Resized: true})
			for n := range row.each {
				position++
				d["n"+name+"\x00"+be(uint64(n))] = marshalled(&wire.SlotState{Session: strings.Repeat("x", row.name), Position: position})
			}
		}
		m, err := Load(d.pairs())
		if row.fits {
			err = errors.Join(err, audit(m))
		}
		if (err == nil) != row.fits {
			t.Errorf("%d of each of %d semaphores: %v", row.each, row.semaphores, err)
		}
	}
}

// A session that has more numbers than are remembered: the last ones are, of each semaphore and of all.
func TestSlots_RememberedBounded(t *testing.T) {
	d := newDriverAt(t, wire.LevelSlots)
	d.line(wire.Code_OK, "open a ttl=1h name=%s", strings.Repeat("x", MaxName))
	remembered := func() (names int) {
		for k := range dump(d.m) {
			if k[0] == slotKind {
				names++
			}
		}
		return names
	}
	grown := d.m.Size()
	for i := range 3 {
		d.line(wire.Code_OK, "resize s%d limit=2000", i)
		d.many(slots.MaxFormer/MaxSlots+2, func(int) *wire.Command { return read(t, "acquire s%d a limit=2000 permits=%d", i, MaxSlots) })
	}
	d.line(wire.Code_OK, "close a graceful")
	d.do()
	want := slots.MaxFormerBytes / (64 + MaxName)
	if n := remembered(); n != want {
		t.Errorf("%d numbers are remembered, want %d", n, want)
	}
	if err := audit(d.m); err != nil || !d.disk.equal(dump(d.m)) {
		t.Errorf("the state is not what is stored: %v", err)
	}
	if n := d.m.Size() - grown; n < slots.MaxFormerBytes/2 || n > 2*slots.MaxFormerBytes {
		t.Errorf("the state has grown by %d bytes", n)
	}
	for i := range 3 {
		d.line(wire.Code_OK, "resize s%d limit=0", i)
	}
	if n := remembered(); n != 0 || d.m.Size() > grown {
		t.Errorf("%d numbers are remembered of nothing", n)
	}
}

// A level 6 state with permits is used at level 7: they have no numbers, and what follows has, up to the limit.
func TestSlots_LevelRaisedWithPermits(t *testing.T) {
	d := newDriverAt(t, wire.LevelSlots-1)
	register := registerCommand(1, MaxTTL)
	register.GetRegister().Boot, register.GetRegister().FeatureLevel = 3, wire.LevelSlots
	token := makeID("token")
	register.GetRegister().Tokens = [][]byte{token[:]}
	d.line(wire.Code_OK, "open n ttl=none name=n")
	before := d.line(wire.Code_OK, "acquire p n limit=3 permits=1")
	d.m = must(Load(d.disk.pairs()))
	d.inc, d.seq = wire.ID{3}, 0
	d.want(wire.Code_OK, d.do(register))
	d.line(wire.Code_OK, "raise level=%d", wire.LevelSlots)
	d.line(wire.Code_OK, "open s ttl=1h name=s")
	first, second := d.line(wire.Code_OK, "acquire p s limit=3 permits=1"), d.line(wire.Code_OK, "acquire p s limit=3 permits=1")
	d.line(wire.Code_LOCKED, "acquire p s limit=3 permits=1")
	d.line(wire.Code_OK, "attach n")
	claimed := d.line(wire.Code_OK, "acquire p n limit=3 permits=1")
	d.line(wire.Code_OK, "release p n fence=%d", claimed.Fence)
	third := d.line(wire.Code_OK, "acquire p n limit=3 permits=1")
	var got []string
	for _, r := range []*wire.Reply{before, first, second, claimed, third} {
		got = append(got, printSlots(r.Slots))
	}
	if want := []string{"", "0", "1", "", "2"}; !slices.Equal(got, want) {
		t.Errorf("numbers %q, want %q", got, want)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// A member that has installed a snapshot gets the numbers of a grant that it has missed.
func TestRecheck_Slots(t *testing.T) {
	d := newDriverAt(t, wire.LevelSlots)
	d.line(wire.Code_OK, "open s ttl=1h")
	held := d.line(wire.Code_OK, "acquire p s limit=2 permits=2")
	d.line(wire.Code_QUEUED, "acquire p s limit=2 permits=2 wait")
	queued := wire.Ticket{Incarnation: d.inc, Seq: d.seq}
	d.line(wire.Code_OK, "release p s fence=%d", held.Fence)
	m := must(Load(d.disk.pairs()))
	if r := m.Recheck(queued, makeID("s"), "p", ""); r.GetCode() != wire.Code_OK || printSlots(r.GetSlots()) != "0,1" {
		t.Errorf("%v", r)
	}
}

// A page of holders ends with the bytes of their numbers.
func TestHoldersQuery_BytesOfSlots(t *testing.T) {
	d := newDriverAt(t, wire.LevelSlots)
	d.line(wire.Code_OK, "open s ttl=1h")
	const n = 2 * pageBytes / (8 * MaxSlots)
	d.many(n, func(int) *wire.Command { return read(t, "acquire p s limit=%d permits=%d", n*MaxSlots, MaxSlots) })
	var holders, pages int
	for q, done := (HoldersQuery{Name: "p"}), false; !done; pages++ {
		page := Ask[HoldersView](d.m, q)
		for _, h := range page.Holders {
			holders += len(h.Slots) / MaxSlots
		}
		q.After, done = page.Next, page.Done
	}
	if holders != n || pages < 2 || pages > 4 {
		t.Errorf("%d holders in %d pages, want %d", holders, pages, n)
	}
}
