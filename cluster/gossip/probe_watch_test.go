package gossip

import (
	"testing"
)

// Only packets that ask for an indirect probe, or that cannot be read, count.
func TestProbeWatch_Packets(t *testing.T) {
	checked := func(b ...byte) []byte { return append([]byte{checkedMessage, 1, 2, 3, 4}, b...) }
	for name, test := range map[string]struct {
		packet []byte
		want   bool
	}{
		"empty":                      {nil, false},
		"ping":                       {[]byte{0, 9}, false},
		"indirect probe":             {[]byte{indirectMessage, 9}, true},
		"acknowledgement":            {[]byte{2, 9}, false},
		"alive":                      {checked(4, 9), false},
		"indirect probe with a sum":  {checked(indirectMessage), true},
		"nack":                       {[]byte{nackMessage, 9}, false},
		"compressed":                 {[]byte{9, 9}, true},
		"two parts, no probe":        {checked(compoundMessage, 2, 0, 1, 0, 2, 0, 3, 3), false},
		"two parts, one probe":       {checked(compoundMessage, 2, 0, 1, 0, 2, 0, 1, 3), true},
		"compound without parts":     {[]byte{compoundMessage}, true},
		"compound without lengths":   {[]byte{compoundMessage, 3, 0, 1}, true},
		"compound with a part cut":   {[]byte{compoundMessage, 1, 0, 9, 0}, true},
		"a type that is not known":   {[]byte{200}, true},
		"compound inside a compound": {[]byte{compoundMessage, 1, 0, 5, compoundMessage, 1, 0, 1, 1}, true},
	} {
		if got := mayContain(test.packet, indirectMessage); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The bytes before a ping are those of memberlist: a checksum, and gossip that travels with it.
func TestProbeWatch_Pings(t *testing.T) {
	for name, test := range map[string]struct {
		packet []byte
		want   bool
	}{
		"ping":                      {[]byte{pingMessage, 9}, true},
		"ping with a sum":           {[]byte{checkedMessage, 1, 2, 3, 4, pingMessage}, true},
		"ping and an alive message": {[]byte{compoundMessage, 2, 0, 1, 0, 2, pingMessage, 4, 9}, true},
		"indirect probe":            {[]byte{indirectMessage, 9}, false},
		"acknowledgement":           {[]byte{2, 9}, false},
		"alive":                     {[]byte{4, 9}, false},
	} {
		if got := mayContain(test.packet, pingMessage); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
