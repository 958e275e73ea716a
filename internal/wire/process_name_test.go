package wire

import "testing"

func TestMemberOf(t *testing.T) {
	for process, want := range map[string]uint64{
		ProcessName(1<<63+7, 12): 1<<63 + 7,
		ProcessName(7, 0):        7,
		"":                       0,
		"m7":                     0,
		"0000000000000007":       0,
		"0000000000000007.":      0,
		"0000000000000007.01":    0,
		"0000000000000007.1.1":   0,
		"7.1":                    0,
		"000000000000000A.1":     0,
		"10000000000000000.1":    0,
	} {
		if got, ok := MemberOf(process); ok != (want != 0) || ok && got != want {
			t.Errorf("%q: got %d, %v, want %d", process, got, ok, want)
		}
	}
}
