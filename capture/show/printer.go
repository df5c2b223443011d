package show

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/visible"
)

// Options say what to print, and how.
type Options struct {
	Filter Filter
	Limit  int // stop after so many packets; 0 for no limit

	JSON      bool
	Verbose   bool // headers, field by field
	Hex       bool // the bytes
	Stats     bool // counts at the end
	StatsOnly bool // nothing but the counts
	Delta     bool // times since the packet before, not since the first

	Width  int  // of a line; 0 for any
	Colour bool // escape sequences may be used
	// Live says that lines are to appear as they come, not in pages.
	Live bool
}

// Printer prints captures one after the other.
type Printer struct {
	w     *bufio.Writer
	opts  Options
	page  page
	stats stats
	shown int
}

// NewPrinter returns a printer that writes to w.
func NewPrinter(w io.Writer, opts Options) *Printer {
	return &Printer{w: bufio.NewWriterSize(w, 1<<16), opts: opts, stats: newStats()}
}

// errEnough ends a capture of which enough was shown.
var errEnough = errors.New("enough")

// Show prints the packets of s up to its end, the limit, or the end of ctx. It
// returns what stopped it, which may be a *capture.DamageError; all before that
// has been printed.
func (p *Printer) Show(ctx context.Context, s *capture.Stream) error {
	p.page = page{stream: s, live: p.opts.Live}
	err := p.packets(ctx, s)
	p.stats.settle(s)
	if werr := p.flushPage(); werr != nil {
		return werr
	}
	if werr := p.w.Flush(); werr != nil {
		return werr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (p *Printer) packets(ctx context.Context, s *capture.Stream) error {
	for {
		if p.opts.Limit > 0 && p.shown >= p.opts.Limit {
			return errEnough
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		pkt, err := s.Next()
		if err != nil {
			return err
		}
		if !p.opts.Filter.match(s, pkt) {
			continue
		}
		p.shown++
		p.stats.add(s, pkt)
		if err := p.packet(s, pkt); err != nil {
			return err
		}
	}
}

func (p *Printer) packet(s *capture.Stream, pkt *capture.Packet) error {
	switch {
	case p.opts.StatsOnly:
		return nil
	case p.opts.JSON:
		return p.json(s, pkt)
	}
	for _, l := range p.lines(s, pkt) {
		if err := p.keep(l); err != nil {
			return err
		}
	}
	if p.opts.Verbose {
		if err := p.keepText(p.details(pkt)); err != nil {
			return err
		}
	}
	if p.opts.Hex {
		if err := p.keepText(hexDump(pkt.Data)); err != nil {
			return err
		}
	}
	if p.opts.Live {
		return p.w.Flush()
	}
	return nil
}

// Heading begins a capture that is one of several.
func (p *Printer) Heading(name string) error {
	if p.opts.JSON || p.opts.StatsOnly {
		return nil
	}
	_, err := p.w.WriteString("==> " + visible.Line(name) + " <==\n")
	return err
}

// Finish prints the counts, if they are wanted, of all that was shown.
func (p *Printer) Finish() error {
	if p.opts.Stats || p.opts.StatsOnly {
		write := p.stats.text
		if p.opts.JSON {
			write = p.stats.json
		}
		if err := write(p.w); err != nil {
			return err
		}
	}
	return p.w.Flush()
}

// Selected is how many packets were selected.
func (p *Printer) Selected() int { return p.shown }
