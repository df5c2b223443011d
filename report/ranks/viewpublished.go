package ranks

import (
	"fmt"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// thesisView compares the memory of connections with Rashti 2010 Table 6.1.
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

// connectionBytes is the memory per connection in Rashti 2010, and here.
const connectionBytes = 200 * pageBytes

// newThesisView compares the memory per rank that datagrams save over connections with Rashti 2010
// Table 6.1, which gives the memory pages of all ranks. There as here a connection takes
// connectionBytes, so the published saving divided by that is the number of peers of a rank. It
// returns nil if e is nil or measured no row of the table.
func newThesisView(e *Experiment) *thesisView {
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
			// The bytes per process that connections need more than datagrams.
			published, measured := (t.rc[column]-t.ud[column])*pageBytes/float64(ranks), rc.Bytes.Mean-ud.Bytes.Mean
			bars.Add(t.name, megabytes(published), kit.Segment{Class: "k3", Value: published})
			bars.Add("", megabytes(measured), kit.Segment{Class: "k0", Value: measured})
			v.Rows = append(v.Rows, thesisRow{
				Name: t.name, Ranks: ranks,
				Pages:     fmt.Sprintf("%.0f and %.0f", t.rc[column], t.ud[column]),
				Published: megabytes(published), Ours: megabytes(measured),
				PublishedPartners: fmt.Sprintf("%.1f", published/connectionBytes), OurConnections: fmt.Sprintf("%.1f", rc.Connections.Mean),
				Saved: fmt.Sprintf("%.1f %%", 100*(1-t.ud[column]/t.rc[column])),
			})
		}
		if bars = bars.Scaled(); bars != nil { // nil if all are empty
			v.Charts = append(v.Charts, thesisChart{ranks, bars})
		}
	}
	if len(v.Rows) == 0 {
		return nil
	}
	return v
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

// designsView compares the eager designs with those of Sur 2006.
type designsView struct {
	Config string
	Keys   []kit.Key
	Bars   *kit.Bars
	Rows   []surveyRow
}

// surveyRow compares measurements with a row of the published survey (Sur 2006).
type surveyRow struct {
	Name                       string
	RingSendRecv, RingSRQ, SRQ string // MB per rank with these designs
	PerRing                    string // KB

	Ratio, PublishedRatio                 string // RingSendRecv divided by SRQ
	RingCount, PublishedRingCount         string
	Unexpected, PublishedUnexpected       string
	LowWatermarks, PublishedLowWatermarks string
}

// newDesignsView shows the memory per rank of the transport designs ring-sendrecv, ring-srq and srq
// on 64 ranks beside the published figures (Sur 2006 Tables 1 and 2). It returns nil if e is nil or
// has no workload with all three designs.
func newDesignsView(e *Experiment) *designsView {
	if e == nil {
		return nil
	}
	compared := []string{"ring-sendrecv", "ring-srq", "srq"}
	v := &designsView{Config: configText(e.Config), Bars: &kit.Bars{}}
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
	if v.Bars = v.Bars.Scaled(); v.Bars == nil { // nil if all are empty
		return nil
	}
	return v
}

// newSurveyRow compares the communication memory of a rank in a published row (Sur 2006 Tables 1 and
// 2) with that measured here, for three transport designs: a ring of buffers for each peer, with
// receives of its own (ring-sendrecv) or shared ones (ring-srq), or shared receives only (srq). Unexpected messages are
// a fraction in a point, and per cent in the published row. LowWatermarks is how often a shared
// receive queue ran so low that new receives had to be posted at once.
func newSurveyRow(published *surveyed, ringSendRecv, ringSRQ, srq *Point) surveyRow {
	r := surveyRow{
		Name:         published.name,
		RingSendRecv: megabytes(ringSendRecv.Bytes.Mean), RingSRQ: megabytes(ringSRQ.Bytes.Mean), SRQ: megabytes(srq.Bytes.Mean),
		Ratio: fmt.Sprintf("%.1f", ringSendRecv.Bytes.Mean/srq.Bytes.Mean), PublishedRatio: published.ratio,
		RingCount: fmt.Sprintf("%.2f", ringSRQ.Rings.Mean), PublishedRingCount: fmt.Sprintf("%.2f", published.rings),
		Unexpected: fmt.Sprintf("%.1f %%", 100*srq.Unexpected), PublishedUnexpected: fmt.Sprintf("%.1f %%", published.unexpected),
		LowWatermarks: fmt.Sprintf("%.2f", srq.LowWatermarks.Mean), PublishedLowWatermarks: fmt.Sprintf("%.2f", published.lowMarks),
	}
	if ringSRQ.Rings.Mean > 0 { // PerRing is the memory that a ring adds
		r.PerRing = fmt.Sprintf("%.0f KB", (ringSRQ.Bytes.Mean-srq.Bytes.Mean)/ringSRQ.Rings.Mean/1000)
	}
	return r
}

// tableRow is a row of Rashti 2010 Table 6.1: the memory of an application in 4 KB pages of all
// its processes, with datagrams and with connections.
type tableRow struct {
	workload string
	name     string // name in the table
	ud, rc   [3]float64
}

// thesisRanks are the numbers of processes of the table's columns.
var thesisRanks = [3]int{4, 16, 64}

var thesisPages = []tableRow{
	{"cg", "CG.B", [3]float64{234924, 556801, 1994428}, [3]float64{235204, 570207, 2097580}},
	{"mg", "MG.B", [3]float64{216591, 534255, 1913295}, [3]float64{222862, 555854, 2038179}},
	{"lu", "LU.B", [3]float64{153453, 473740, 1894628}, [3]float64{155982, 495422, 1978663}},
	{"smg", "SMG2000", [3]float64{102899, 418063, 1815192}, [3]float64{105138, 461478, 2577276}},
	{"radix", "RADIX", [3]float64{133678, 453124, 1727232}, [3]float64{135297, 491937, 2493291}},
}

const pageBytes = 4096

// surveyed has the values of Sur 2006 Tables 1 and 2, and its text, for an application with
// 64 processes. Negative values are not published.
type surveyed struct {
	workload   string
	name       string
	rings      float64 // connections with RDMA, on average
	lowMarks   float64 // low watermark events, on average
	unexpected float64 // per cent of messages
	ratio      string  // memory of ring-sendrecv divided by that of srq
}

const surveyRanks = 64

var surveyTable = []surveyed{
	{"is", "IS", 6.14, 0, 2.7, "about 10"},
	{"ft", "FT", 0.98, 0, 11.9, "about 10"},
	{"bt", "BT", 3.89, 0, 0.3, "about 10"},
	{"sp", "SP", 1.17, 0, 0.7, "about 10"},
	{"cg", "CG", 3.09, 0, 13.5, "about 2"},
	{"mg", "MG", 9.0, 0, 10.2, "about 2"},
	{"lu", "LU", 3.92, 0, 38.1, "about 2"},
	{"superlu", "SuperLU, rim", 14.25, 0.64, 30.0, "9"},
	{"hpl", "HPL", 6.26, 0, 13.6, ""},
}

// workloadTitles are titles and descriptions of workloads.
var workloadTitles = map[string][2]string{
	"neighbours": {"Neighbours on a grid", "At most six partners, and those of barriers and reductions, which grow with the logarithm of the ranks."},
	"cg":         {"CG", "Partners grow with the logarithm of the ranks."},
	"alltoall":   {"All-to-all", "All ranks are partners."},
	"radix":      {"RADIX", "Every rank sends keys to every other."},
	"smg":        {"SMG2000", "On the coarsest levels all ranks are partners."},
}

// The curve of allToAll continues with star, which measures rank 0 alone, for more ranks
// than a host can run.
const (
	allToAll = "alltoall"
	star     = "star"
)

// workloadOrder is the order of the workloads on the page.
var workloadOrder = []string{"neighbours", "cg", allToAll, "radix", "smg"}

// Names of the experiments.
const (
	curves = "curves" // all designs against the number of ranks
	thesis = "thesis" // connections and datagrams (Rashti 2010 Table 6.1)
	survey = "survey" // rings, and shared receives (Sur 2006 Table 1 and Fig. 4)
)
