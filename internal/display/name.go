// Package display prints what other processes have named, for people at a terminal or a
// browser.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
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
		case r == '\\', r == ' ' && atEnd, isHidden(r):
			b.WriteString(escaped(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isHidden reports whether a character is not printable, or would change how other text is shown.
func isHidden(r rune) bool {
	return !unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r)
}

// JSON returns a JSON text of package json with the same meaning, in which the characters that [Name] escapes are
// escaped, but for backslashes and spaces: that package prints the controls of C1 as they are, which some
// terminals obey.
func JSON(text []byte) []byte {
	var b []byte
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r < utf8.RuneSelf && r != 0x7f || !isHidden(r) { // package json escapes in ASCII what JSON demands
			b = append(b, text[i:i+size]...)
		} else {
			for _, unit := range utf16.Encode([]rune{r}) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
		i += size
	}
	return b
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
