package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// Stdin is the name of the standard input among the files of PrintFiles.
const Stdin = "-"

// Streams are the input and outputs of PrintFiles.
type Streams struct {
	In       io.Reader // for Stdin
	Out, Err io.Writer
}

// PrintFiles decodes captures one after the other. An error in one is printed and does
// not prevent the others; ok reports that there was none.
func PrintFiles(ctx context.Context, streams Streams, files []string, opts PrintOptions) (ok bool, err error) {
	for _, name := range files {
		opts.Live = opts.Live || name == Stdin
	}
	p := NewPrinter(streams.Out, opts)
	ok = true
	for _, name := range files {
		if len(files) > 1 {
			if err := p.Heading(name); err != nil {
				return false, err
			}
		}
		err := p.file(ctx, streams.In, name)
		if errors.Is(err, context.Canceled) { // by Ctrl-C; the counts are still printed
			break
		}
		if err != nil {
			fmt.Fprintf(streams.Err, "fabrictest: %s: %v\n", name, err)
			ok = false
		}
	}
	return ok, p.Finish()
}

// file decodes one capture.
func (p *Printer) file(ctx context.Context, r io.Reader, name string) error {
	if name != Stdin {
		f, err := cmdline.OpenFile(name)
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) { // its message repeats the name
				err = path.Err
			}
			if errors.Is(err, cmdline.ErrNotRegular) {
				err = fmt.Errorf("%w, or - to decode the standard input, as in 'fabrictest capture show - < %s'", err, cmdline.Quote(name))
			}
			return err
		}
		defer f.Close()
		r = f
	}
	s, err := Open(r)
	if err != nil {
		return err
	}
	return p.Show(ctx, s)
}
