package ethernet

import (
	"strings"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// explainer is a Path that can say what it did to the last frame.
type explainer interface {
	// explaining tells the Path that it will be asked.
	explaining()
	// explanation is empty if nothing happened, or nothing but a delay.
	explanation() string
}

func (p *Impairer) explaining() { p.explains = true }

// explanation reads what happened from the counters of the Pipe.
func (p *Impairer) explanation() string {
	now, before := p.pipe.Counters(), &p.before
	var deeds []string
	for _, c := range []struct {
		deed string
		of   func(*impair.Counters) uint64
	}{
		{"lost", func(c *impair.Counters) uint64 { return c.Lost }},
		{"lost in a burst", func(c *impair.Counters) uint64 { return c.LostInBurst }},
		{"lost: queue full", func(c *impair.Counters) uint64 { return c.Overflowed }},
		{"lost by an event", func(c *impair.Counters) uint64 { return c.EventsDropped }},
		{"duplicated", func(c *impair.Counters) uint64 { return c.Duplicated }},
		{"reordered", func(c *impair.Counters) uint64 { return c.Reordered }},
		{"corrupted", func(c *impair.Counters) uint64 { return c.Corrupted }},
		{"truncated", func(c *impair.Counters) uint64 { return c.Truncated }},
		{"marked", func(c *impair.Counters) uint64 { return c.Marked }},
		{"event", func(c *impair.Counters) uint64 { return c.EventsFired }},
	} {
		if c.of(&now) == c.of(before) || (c.deed == "event" && len(deeds) > 0) {
			continue
		}
		deeds = append(deeds, c.deed)
	}
	return strings.Join(deeds, ", ")
}

func (f *Filter) explaining() {
	if e, ok := f.next.(explainer); ok {
		e.explaining()
	}
}

func (f *Filter) explanation() string {
	if f.last {
		return "lost: partitioned"
	}
	return explanation(f.next)
}

func explanation(p uswitch.FrameHandler) string {
	if e, ok := p.(explainer); ok {
		return e.explanation()
	}
	return ""
}
