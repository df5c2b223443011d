package capture

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// PrintOptions configure a Printer.
type PrintOptions struct {
	Filter Filter
	Limit  int // number of packets; 0 for no limit

	JSON      bool
	Verbose   bool // print headers
	Hex       bool // print hex dumps
	Stats     bool // print statistics at the end
	StatsOnly bool // print only statistics
	Delta     bool // times since the previous packet, not since the first

	Width  int  // of a line; 0 for no limit
	Colour bool // use escape sequences
	Live   bool // print each line at once, without aligning a page
}

// Printer prints one or more captures.
type Printer struct {
	w     *bufio.Writer
	opts  PrintOptions
	page  page
	stats stats
	shown int
}

// NewPrinter returns a printer that writes to w.
func NewPrinter(w io.Writer, opts PrintOptions) *Printer {
	return &Printer{w: bufio.NewWriterSize(w, 1<<16), opts: opts, stats: stats{
		total: counters{Name: "total"}, ops: map[string]*counters{}, flows: map[statsFlow]*counters{}, namedFlows: map[string]*counters{},
		otherFlows: counters{Name: "other flows"}, marks: map[MarkKind]int{}, naks: map[string]int{},
	}}
}

// Show prints the packets of s until its end, the limit, or the end of ctx, in pages of lines with
// aligned columns. It returns a read error, such as a *CorruptError, after the packets before it.
func (p *Printer) Show(ctx context.Context, s *Stream) error {
	p.page = page{stream: s, live: p.opts.Live}
	err := p.printPackets(ctx, s)
	p.stats.nameFlows(s)
	if werr := p.flushPage(); werr != nil {
		return werr
	}
	if werr := p.w.Flush(); werr != nil {
		return werr
	}
	return err
}

// printPackets prints the packets of a stream that match the filter, up to the limit.
func (p *Printer) printPackets(ctx context.Context, s *Stream) error {
	for p.opts.Limit == 0 || p.shown < p.opts.Limit {
		if err := ctx.Err(); err != nil {
			return err
		}
		pkt, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !p.opts.Filter.match(s, pkt) {
			continue
		}
		p.shown++
		p.stats.add(s, pkt)
		if err := p.printPacket(s, pkt); err != nil {
			return err
		}
	}
	return nil
}

// printPacket prints one packet in the chosen format.
func (p *Printer) printPacket(s *Stream, pkt *Packet) error {
	switch {
	case p.opts.StatsOnly:
		return nil
	case p.opts.JSON:
		return p.printJSON(s, pkt)
	}
	for _, l := range p.lines(s, pkt) {
		if err := p.appendLine(l); err != nil {
			return err
		}
	}
	if p.opts.Verbose {
		if err := p.appendText(p.details(pkt)); err != nil {
			return err
		}
	}
	if p.opts.Hex {
		if err := p.appendText(hexDump(pkt.Data)); err != nil {
			return err
		}
	}
	if p.opts.Live {
		return p.w.Flush()
	}
	return nil
}

// Finish prints the statistics of all captures, if requested.
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
