// Package display prints what other processes have named, for people at a terminal or a
// browser.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns a name as it is shown: what is not printable, or would change how other
// text is shown, such as a right-to-left override, is a Go escape. No escape looks like
// another name: a backslash is escaped too, and so are spaces at the ends.
func Name(name string) string {
	var b strings.Builder
	for rest := name; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		atEnd := len(rest) == len(name) || len(rest) == size
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		}
		rest = rest[size:]
		switch {
		case r == utf8.RuneError && size == 1:
		case r == '\\', r == ' ' && atEnd, !unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r):
			b.WriteString(escaped(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func escaped(r rune) string {
	if r == ' ' {
		return `\x20`
	}
	quoted := strconv.QuoteRuneToASCII(r)
	return quoted[1 : len(quoted)-1]
}

// Value returns a value as it is shown: like Name, and with at most that many bytes. One that is
// cut, between characters, has its size behind it.
func Value(v []byte, most int) string {
	if len(v) <= most {
		return Name(string(v))
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(v[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", Name(string(v[:end])), len(v))
}
