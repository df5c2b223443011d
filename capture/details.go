package capture

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// nameWidth is the width of the column of header names.
const nameWidth = 18

// details formats the headers of a packet, with as many fields per line as fit.
func (p *Printer) details(pkt *Packet) string {
	width := p.opts.Width
	if width < 60 {
		width = 120
	}
	var b strings.Builder
	if pkt.Truncated() > 0 {
		fmt.Fprintf(&b, "    %-*s%d of %d bytes\n", nameWidth, "recorded", len(pkt.Data), pkt.Length)
	}
	for _, h := range pkt.Headers() {
		used := 4 + nameWidth
		name := fmt.Sprintf("    %-*s", nameWidth, truncate(h.Name, nameWidth-1))
		if p.opts.Colour {
			name = cyan + name + reset
		}
		b.WriteString(name)
		for i, f := range h.Fields {
			text := f.Name + " " + textfmt.PrintableLine(f.String())
			if i < len(h.Fields)-1 {
				text += ","
			}
			n := utf8.RuneCountInString(text) + 1
			if used+n > width && used > 4+nameWidth {
				b.WriteString("\n" + strings.Repeat(" ", 4+nameWidth))
				used = 4 + nameWidth
			}
			b.WriteString(text + " ")
			used += n
		}
		b.WriteByte('\n')
	}
	return trimLines(b.String())
}

func trimLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		if body, ok := strings.CutSuffix(l, "\n"); ok {
			lines[i] = strings.TrimRight(body, " ") + "\n"
		}
	}
	return strings.Join(lines, "")
}

// hexDump formats bytes like hexdump -C, indented.
func hexDump(b []byte) string {
	if len(b) == 0 {
		return "    no bytes\n"
	}
	dump := strings.TrimRight(hex.Dump(b), "\n")
	return "    " + strings.ReplaceAll(dump, "\n", "\n    ") + "\n"
}
