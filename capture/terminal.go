package capture

import (
	"io"
	"os"
	"strconv"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// TerminalProperties returns the line width of w, 0 if it is not a terminal, and whether
// to use colour. It honours NO_COLOR, TERM and COLUMNS.
func TerminalProperties(w io.Writer) (width int, colour bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false
	}
	width = textfmt.TerminalWidth(f)
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
