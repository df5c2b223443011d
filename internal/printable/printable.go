// Package visible cleans text from outside of the program, such as the names and
// messages of peers, guests and files, before it is shown: no control character of it
// reaches a terminal. All commands print through it.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text makes a text from elsewhere fit to be shown: what would control a
// terminal, end a document or change the direction of a line is spelled out.
// Line ends and tabs stay.
func Text(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !hidden(r):
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff: // as JSON has it, which holds these characters unescaped
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		}
		s = s[n:]
	}
	return b.String()
}

// hidden are the characters that do something instead of being seen. Of the
// formatting ones only those are left that join the parts of one character.
func hidden(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f || r == '\n' || r == '\t':
		return false
	case r == '\u200c' || r == '\u200d':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == '\ufffe' || r == '\uffff'
}

// Line is the text with everything spelled out that would control a terminal
// or hide in a page, in one line.
func Line(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Text(s))
}
