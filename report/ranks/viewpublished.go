package ranks

import (
	"fmt"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// thesisView compares the memory of connections with Thesis Table 6.1.
type thesisView struct {
	Config string
	Keys   []kit.Key
	Charts []thesisChart
	Rows   []thesisRow
}

type thesisChart struct {
	Ranks int
	Bars  *kit.Bars
}

type thesisRow struct {
	Name                              string
	Ranks                             int
	Pages                             string // published pages, connections and datagrams
	Published, Ours                   string // MB of connections per process
	PublishedPartners, OurConnections string
	Saved                             string // published saving of all memory
}

const mega = 1e6

// connectionBytes is the memory per connection in the thesis, and here.
const connectionBytes = 200 * pageBytes

// newThesis compares the memory per rank that datagrams save over connections with the
// published figures; nil without such an experiment.
func newThesis(e *Experiment) *thesisView {
	if e == nil {
		return nil
	}
	v := &thesisView{Config: configText(e.Config), Keys: []kit.Key{{Class: "k3", Name: "published"}, {Class: "k0", Name: "measured here"}}}
	for column, ranks := range thesisRanks {
		bars := &kit.Bars{}
		for i := range thesisPages {
			t := &thesisPages[i]
			rc, ud := e.point(t.workload, "sendrecv", ranks), e.point(t.workload, "ud", ranks)
			if rc == nil || ud == nil {
				continue
			}
			ours := rc.Bytes.Mean - ud.Bytes.Mean
			bars.Add(t.name, megabytes(t.connectionMemory(column)), kit.Segment{Class: "k3", Value: t.connectionMemory(column)})
			bars.Add("", megabytes(ours), kit.Segment{Class: "k0", Value: ours})
			v.Rows = append(v.Rows, thesisRow{
				Name: t.name, Ranks: ranks,
				Pages:     fmt.Sprintf("%.0f and %.0f", t.rc[column], t.ud[column]),
				Published: megabytes(t.connectionMemory(column)), Ours: megabytes(ours),
				PublishedPartners: fmt.Sprintf("%.1f", t.connectionMemory(column)/connectionBytes), OurConnections: fmt.Sprintf("%.1f", rc.Connections.Mean),
				Saved: fmt.Sprintf("%.1f %%", 100*t.saved(column)),
			})
		}
		if bars = bars.Scaled(); bars != nil {
			v.Charts = append(v.Charts, thesisChart{ranks, bars})
		}
	}
	if len(v.Rows) == 0 {
		return nil
	}
	return v
}

func megabytes(v float64) string { return fmt.Sprintf("%.1f MB", v/mega) }

// surveyView compares the eager designs with those of the survey.
type surveyView struct {
	Config string
	Keys   []kit.Key
	Bars   *kit.Bars
	Rows   []surveyRow
}

type surveyRow struct {
	Name               string
	Own, Rings, Shared string // MB per rank with ring-sendrecv, ring-srq and srq
	PerRing            string // KB

	Ratio, PublishedRatio                 string // Own divided by Shared
	RingCount, PublishedRingCount         string
	Unexpected, PublishedUnexpected       string
	LowWatermarks, PublishedLowWatermarks string
}

func newSurvey(e *Experiment) *surveyView {
	if e == nil {
		return nil
	}
	compared := []string{"ring-sendrecv", "ring-srq", "srq"}
	v := &surveyView{Config: configText(e.Config), Bars: &kit.Bars{}}
	classes := map[string]string{}
	for i, d := range designs {
		classes[d] = designClass(i)
	}
	for _, d := range compared {
		v.Keys = append(v.Keys, kit.Key{Class: classes[d], Name: d})
	}
	for i := range surveyTable {
		t := &surveyTable[i]
		var p [3]*Point
		complete := true
		for k, d := range compared {
			p[k] = e.point(t.workload, d, surveyRanks)
			complete = complete && p[k] != nil
		}
		if !complete {
			continue
		}
		for k, d := range compared {
			name := ""
			if k == 0 {
				name = t.name
			}
			v.Bars.Add(name, megabytes(p[k].Bytes.Mean), kit.Segment{Class: classes[d], Value: p[k].Bytes.Mean})
		}
		v.Rows = append(v.Rows, newSurveyRow(t, p[0], p[1], p[2]))
	}
	if v.Bars = v.Bars.Scaled(); v.Bars == nil {
		return nil
	}
	return v
}

// newSurveyRow compares a published row with points measured with own, ring and shared receive
// buffers.
func newSurveyRow(t *surveyed, own, rings, shared *Point) surveyRow {
	r := surveyRow{
		Name: t.name,
		Own:  megabytes(own.Bytes.Mean), Rings: megabytes(rings.Bytes.Mean), Shared: megabytes(shared.Bytes.Mean),
		Ratio: fmt.Sprintf("%.1f", own.Bytes.Mean/shared.Bytes.Mean), PublishedRatio: t.ratio,
		RingCount: fmt.Sprintf("%.2f", rings.Rings.Mean), PublishedRingCount: fmt.Sprintf("%.2f", t.rings),
		Unexpected: fmt.Sprintf("%.1f %%", 100*shared.Unexpected), PublishedUnexpected: fmt.Sprintf("%.1f %%", t.unexpected),
		LowWatermarks: fmt.Sprintf("%.2f", shared.LowWatermarks.Mean), PublishedLowWatermarks: fmt.Sprintf("%.2f", t.low),
	}
	if rings.Rings.Mean > 0 {
		r.PerRing = fmt.Sprintf("%.0f KB", (rings.Bytes.Mean-shared.Bytes.Mean)/rings.Rings.Mean/1000)
	}
	return r
}
