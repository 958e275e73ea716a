package display

import "testing"

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
