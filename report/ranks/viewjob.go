package ranks

import (
	"fmt"
	"html/template"
	"math"
	"math/bits"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// jobView is the template's data for a job.
type jobView struct {
	Headline string
	Good     bool
	Missing  string // ranks without statistics
	Tiles    []tile
	Sizes    *kit.Bars // messages by size
	Ways     *kit.Bars // packets by path
	RTRs     *kit.Bars
	Found    *kit.Bars // hits of the registration cache, and reused buffers
	Kinds    *kit.Bars // memory
	ByRank   template.HTML
	Coarse   int // ranks per column
	Groups   []groupView
}

// tile is a main figure.
type tile struct{ Value, Name, Note string }

// groupView is a table of statistics.
type groupView struct {
	Name string
	Rows []rowView
}

type rowView struct {
	Name             string
	Part             bool // part of the row above
	Sum, Least, Most string
}

func newJobView(j *Job) *jobView {
	v := &jobView{Good: j.Code == 0}
	how := "ended well"
	if !v.Good {
		how = fmt.Sprintf("failed: exit code %d", j.Code)
	}
	v.Headline = fmt.Sprintf("%s on %s %s", j.Program, textfmt.Plural(j.Ranks, "rank"), how)
	all := j.reported()
	if n := j.Ranks - len(all); n > 0 {
		v.Missing = fmt.Sprintf("%s of %d handed in no statistics: what follows is of the others.", textfmt.Plural(n, "rank"), j.Ranks)
	}
	if len(all) == 0 {
		return v
	}
	v.tiles(all)
	v.Sizes, v.Ways, v.RTRs, v.Found, v.Kinds = sizeBars(all), wayBars(all), rtrBars(all), foundBars(all), kindBars(all)
	v.ByRank, v.Coarse = drawByRank(j.Stats)
	v.tables(all)
	return v
}

// sum adds a value of all ranks.
func sum(all []Values, path string) (n uint64) {
	for _, s := range all {
		n += s.Count(path)
	}
	return n
}

func (v *jobView) tiles(all []Values) {
	large := sum(all, "P2P.Sent.1.Messages")
	messages := sum(all, "P2P.Sent.0.Messages") + large
	var total, most, connections uint64
	for _, s := range all {
		_, n := memoryOf(s)
		total, most, connections = total+n, max(most, n), max(connections, s.Count("Carrier.max_connections"))
	}
	add := func(value, name, note string) { v.Tiles = append(v.Tiles, tile{value, name, note}) }
	add(textfmt.Count(messages, ","), "messages", textfmt.Bytes(sum(all, "P2P.Sent.0.Bytes")+sum(all, "P2P.Sent.1.Bytes")))
	add(textfmt.Percent(large, messages), "by rendezvous", "the rest eagerly")
	add(textfmt.Percent(sum(all, "P2P.Unexpected"), messages), "unexpected", "came before their receives")
	add(textfmt.Count(connections, ","), "connections", "of a rank, at most")
	add(textfmt.Bytes(total/uint64(len(all))), "communication memory", "a rank; at most "+textfmt.Bytes(most))
	if came := sum(all, "P2P.RTRsCame"); came > 0 {
		add(textfmt.Percent(sum(all, "P2P.RTRsUsed"), came), "of RTRs used", textfmt.Count(came, ",")+" came")
	}
	if hits, misses := sum(all, hitsPath), sum(all, missesPath); hits+misses > 0 {
		add(textfmt.Percent(hits, hits+misses), "registrations found", textfmt.Count(misses, ",")+" were made")
	}
	if n := sum(all, "Carrier.low_watermark"); n > 0 {
		add(textfmt.Count(n, ","), "low watermarks", "of shared receives")
	}
}

// Paths of the counters of the registration cache.
const (
	hitsPath   = "Carrier.registrations.Hits"
	missesPath = "Carrier.registrations.Misses"
)

func (v *jobView) tables(all []Values) {
	for _, t := range Totals(all) {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != t.Group {
			v.Groups = append(v.Groups, groupView{Name: t.Group})
		}
		g := &v.Groups[len(v.Groups)-1]
		name := strings.TrimLeft(t.Name, " ")
		g.Rows = append(g.Rows, rowView{name, name != t.Name, t.Shown(), t.Show(t.Least), t.Show(t.Most)})
	}
}

// sizeBars shows messages by powers of two, from the smallest to the largest.
func sizeBars(all []Values) *kit.Bars {
	b := &kit.Bars{Keys: []kit.Key{{Class: "k0", Name: "eagerly"}, {Class: "k1", Name: "by rendezvous"}}}
	var eager, large []uint64
	for i := range 64 {
		eager = append(eager, sum(all, fmt.Sprint("P2P.Sent.0.BySize.", i)))
		large = append(large, sum(all, fmt.Sprint("P2P.Sent.1.BySize.", i)))
	}
	last := len(eager) - 1
	for last >= 0 && eager[last]+large[last] == 0 {
		last--
	}
	for i := range last + 1 {
		e, r := eager[i], large[i]
		if e+r > 0 || len(b.Bars) > 0 {
			b.Add(sizeClass(i), textfmt.Count(e+r, ","), kit.Segment{Class: "k0", Value: float64(e)}, kit.Segment{Class: "k1", Value: float64(r)})
		}
	}
	return b.Scaled()
}

// sizeClass names the sizes with i bits.
func sizeClass(i int) string {
	if i == 0 {
		return "empty"
	}
	from, to := uint64(1)<<(i-1), uint64(1)<<i-1
	if bits.Len64(from) <= 10 {
		if from == to {
			return "1 B"
		}
		return fmt.Sprintf("%d – %d B", from, to)
	}
	return "from " + strings.Replace(textfmt.Bytes(from), ".0 ", " ", 1)
}

func wayBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for i, name := range transports {
		if n := sum(all, fmt.Sprint("Carrier.packets.", i)); n > 0 {
			b.Add(name, textfmt.Count(n, ","), kit.Segment{Class: "k2", Value: float64(n)})
		}
	}
	return b.Scaled()
}

func rtrBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for _, r := range []struct{ name, class, path string }{
		{"came", "k0", "P2P.RTRsCame"},
		{"were used", "k2", "P2P.RTRsUsed"},
		{"were dropped", "k1", "P2P.RTRsDropped"},
		{"an RTS had crossed", "k1", "P2P.Crossed"},
		{"were for eager data", "k5", "P2P.Mispredicted"},
	} {
		n := sum(all, r.path)
		b.Add(r.name, textfmt.Count(n, ","), kit.Segment{Class: r.class, Value: float64(n)})
	}
	return b.Scaled()
}

func foundBars(all []Values) *kit.Bars {
	b := &kit.Bars{Keys: []kit.Key{{Class: "k2", Name: "found, or not copied"}, {Class: "k1", Name: "made, or copied"}}}
	add := func(name string, found, of uint64) {
		if of > 0 {
			b.Add(name, textfmt.Count(found, ",")+" of "+textfmt.Count(of, ","), kit.Segment{Class: "k2", Value: float64(found)}, kit.Segment{Class: "k1", Value: float64(of - found)})
		}
	}
	hits := sum(all, hitsPath)
	add("registrations", hits, hits+sum(all, missesPath))
	add("small buffers", sum(all, "Carrier.reuse.Frequent"), sum(all, "Carrier.reuse.Uses"))
	return b.Scaled()
}

// kindBars shows the average memory of a rank by kind.
func kindBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for k, name := range memoryKinds {
		total, least, most := uint64(0), uint64(math.MaxUint64), uint64(0)
		for _, s := range all {
			n := s.Count(fmt.Sprint("Carrier.memory.max.", k))
			total, least, most = total+n, min(least, n), max(most, n)
		}
		if total == 0 {
			continue
		}
		text := textfmt.Bytes(total / uint64(len(all)))
		if least != most {
			text += fmt.Sprintf(" (%s to %s)", textfmt.Bytes(least), textfmt.Bytes(most))
		}
		b.Add(name, text, kit.Segment{Class: kindClass(k), Value: float64(total) / float64(len(all))})
	}
	return b.Scaled()
}

// kindClass returns the CSS class of a kind of memory.
func kindClass(k int) string { return fmt.Sprintf("m%d", k) }
