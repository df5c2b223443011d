package ethernet

import (
	"strings"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// explainer is a FrameHandler that can describe what it did to the last frame.
type explainer interface {
	// enableExplanation must be called before explanation is used.
	enableExplanation()
	// explanation is empty if the frame was unchanged or only delayed.
	explanation() string
}

func (p *Impairer) enableExplanation() { p.explainEnabled = true }

// explanation compares the counters of the Pipe before and after the frame.
func (p *Impairer) explanation() string {
	now, before := p.pipe.Counters(), &p.before
	var effects []string
	for _, c := range []struct {
		effect string
		of     func(*impair.Counters) uint64
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
		if c.of(&now) == c.of(before) || (c.effect == "event" && len(effects) > 0) {
			continue
		}
		effects = append(effects, c.effect)
	}
	return strings.Join(effects, ", ")
}

func (f *Filter) enableExplanation() {
	if e, ok := f.next.(explainer); ok {
		e.enableExplanation()
	}
}

func (f *Filter) explanation() string {
	if f.lastBlocked {
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
