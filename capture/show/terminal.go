package show

import (
	"io"
	"os"
	"strconv"
)

// TerminalProperties says what w is fit for: the width of its lines, 0 if it is no
// terminal, and whether it wants colour. NO_COLOR and COLUMNS are heeded.
func TerminalProperties(w io.Writer) (width int, colour bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false
	}
	width = windowWidth(f)
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
