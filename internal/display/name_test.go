package display

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "a b": "a b", " ": `\x20`, " a ": `\x20a\x20`, `a\n`: `a\\n`, "a\nb": `a\nb`, "\x1b[2J": `\x1b[2J`,
		"a\xffb": `a\xffb`, "a\ufffdb": "a\ufffdb", "\U0001f512": "\U0001f512", "\ufe0f": `\ufe0f`, "\u2066x\u2069": `\u2066x\u2069`,
	} {
		if got := Name(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// A value that is cut says so, and where.
func TestValue(t *testing.T) {
	long := strings.Repeat("é", 300)
	for v, want := range map[string]string{
		"": "", "10.0.0.7:80": "10.0.0.7:80", long: strings.Repeat("é", 100) + "… (600 bytes)",
		"x" + long: "x" + strings.Repeat("é", 99) + "… (601 bytes)", strings.Repeat("\x80", 300): strings.Repeat(`\x80`, 196) + "… (300 bytes)",
	} {
		if got := Value([]byte(v), 200); got != want {
			t.Errorf("%q is shown as %q, want %q", v, got, want)
		}
	}
}

// What is hidden is escaped, and a program reads the same text.
func TestJSON(t *testing.T) {
	for name, want := range map[string]string{
		"": `""`, "a b\u00e9": `"a bé"`, "\u009b31m": `"\u009b31m"`, "\x7f\x1b": `"\u007f\u001b"`, "\u202ex": `"\u202ex"`, `\`: `"\\"`,
		"\ufe0f": `"\ufe0f"`, "\U000e0001": `"\udb40\udc01"`, "\U0001f512": "\"\U0001f512\"", "a\nb": `"a\nb"`,
	} {
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		text = JSON(text)
		var again string
		if err := json.Unmarshal(text, &again); err != nil || string(text) != want || again != name {
			t.Errorf("%q is %s, and read as %q, %v; want %s", name, text, again, err, want)
		}
	}
}
