package textfmt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable escapes control characters, invalid UTF-8 and characters that change the text
// direction. It keeps newlines and tabs.
func Printable(s string) string {
	if strings.IndexFunc(s, mustEscape) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !mustEscape(r):
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff: // a JSON escape, so that JSON stays valid
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		}
		s = s[n:]
	}
	return b.String()
}

// mustEscape reports whether r is a control or format character. Zero-width joiners are
// allowed, because they are part of visible characters.
func mustEscape(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f || r == '\n' || r == '\t':
		return false
	case r == '\u200c' || r == '\u200d':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == '\ufffe' || r == '\uffff'
}

// PrintableLine is like Printable, but replaces newlines and tabs by spaces.
func PrintableLine(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(s))
}
