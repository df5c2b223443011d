package perf

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/traffic"
)

// Report is the result of a Benchmark.
type Report struct {
	Benchmark
	Service Service
	// Run describes the device and the host. Its series are those of Rows.
	Run record.Run
	// Gigabits prints bandwidths in Gb/s instead of MiB/s.
	Gigabits bool
	Rows     []Row
}

// Row is the result of a size.
type Row struct {
	Bytes int
	Figures
}

// combine adds the figures of other clients that ran at the same time.
func (f *Figures) combine(others ...Figures) {
	for i := range others {
		if o := &others[i]; f.Transfer != nil {
			f.Transfer.add(o.Transfer)
		} else {
			f.Times.Merge(o.Times)
		}
	}
}

// Add adds the result of a size, of one or several clients.
func (r *Report) Add(bytes int, clients ...Figures) {
	f := clients[0]
	f.combine(clients[1:]...)
	r.Rows = append(r.Rows, Row{bytes, f})
	switch r.Kind {
	case Lat:
		r.addLatency(r.series(r.title(), bytes), f.Times)
	case Register:
		r.addLatency(r.series(titleRegistration, bytes), f.Times)
		r.addLatency(r.series(titleDeregistration, bytes), f.Deregistrations)
	case BW, MsgRate:
		name := r.series(r.title(), bytes)
		r.Run.Add(name, record.Bytes, f.Transfer.PerS()*float64(bytes))
		r.Run.Add(name, record.Messages, f.Transfer.PerS())
	}
}

// series returns the name of the series of a table and a size, which is that of the imported text.
func (r *Report) series(title string, bytes int) string {
	name := fmt.Sprintf("%s/bytes=%d", record.SeriesName(title), bytes)
	if r.QPs > 1 {
		name += fmt.Sprintf("/qps=%d", r.QPs)
	}
	return name
}

// Titles of the tables of Register.
const titleRegistration, titleDeregistration = "MR_Registration Latency", "MR_Deregistration Latency"

// addLatency adds the samples of a row of times, as record makes them of a row of perftest.
func (r *Report) addLatency(name string, h *traffic.Histogram) {
	r.Run.Add(name, record.Seconds, h.Quantile(50).Seconds())
	r.Run.Add(name+"/percentile=99", record.Seconds, h.Quantile(99).Seconds())
	r.Run.Add(name+"/percentile=99.9", record.Seconds, h.Quantile(99.9).Seconds())
}

// testNames are the names of verbs in titles.
var testNames = map[string]string{
	"send": "Send", "write": "RDMA_Write", "read": "RDMA_Read", "fetch_add": "Fetch_Add", "cmp_swap": "Cmp_Swap",
}

// title returns the title of the table: that of perftest, if there is one.
func (r *Report) title() string {
	name := testNames[r.Verb]
	if r.BothWays {
		name += " Bidirectional"
	}
	return name + map[Kind]string{Lat: " Latency", BW: " BW", MsgRate: " Rate"}[r.Kind]
}

// WriteTable writes the result as perftest does.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	switch r.Kind {
	case Lat:
		r.writeTimes(&b, r.title(), func(f *Figures) *traffic.Histogram { return f.Times })
	case Register:
		r.writeTimes(&b, titleRegistration, func(f *Figures) *traffic.Histogram { return f.Times })
		r.writeTimes(&b, titleDeregistration, func(f *Figures) *traffic.Histogram { return f.Deregistrations })
	case BW, MsgRate:
		r.writeTransfers(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var rule = strings.Repeat("-", 87) + "\n"

// WriteHistogram writes the distribution of the times, of which there must be one.
func (r *Report) WriteHistogram(w io.Writer) error {
	if len(r.Rows) != 1 || r.Rows[0].Times == nil {
		return cli.Errorf("--histogram: there are %d distributions: give one size, without --repeat", len(r.Rows))
	}
	return r.Rows[0].Times.WritePercentiles(w)
}

// writeHeader writes the title and the options.
func (r *Report) writeHeader(b *strings.Builder, title string) {
	fmt.Fprintf(b, "%s                    %s Test\n", rule, title)
	pair := func(left, value, right, rightValue string) {
		fmt.Fprintf(b, " %-15s : %s\t\t%-14s : %s\n", left, value, right, rightValue)
	}
	pair("Device", r.Run.Device.Name, "Link type", r.Run.Device.Link)
	if r.Kind != Register {
		pair("Number of qps", fmt.Sprint(r.QPs), "Connection type", strings.ToUpper(r.Service.String()))
		fmt.Fprintf(b, " %-15s : %d[B]\n", "Max inline data", r.Inline)
	}
	if r.Kind == BW || r.Kind == MsgRate {
		pair("TX depth", fmt.Sprint(r.Depth), "CQ Moderation", fmt.Sprint(r.Moderation))
		fmt.Fprintf(b, " %-15s : %d\n", "Post List", r.PostList)
	}
	b.WriteString(rule)
}

// writeTimes writes a table of times in microseconds.
func (r *Report) writeTimes(b *strings.Builder, title string, times func(*Figures) *traffic.Histogram) {
	r.writeHeader(b, title)
	fmt.Fprintln(b, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ")
	micros := func(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/1e3) }
	for i := range r.Rows {
		h := times(&r.Rows[i].Figures)
		fmt.Fprintf(b, " %-7d %-14d %-14s %-12s %-16s %-14s %-15s %-22s %s\n", r.Rows[i].Bytes, h.Count(), micros(h.Min()), micros(h.Max()),
			micros(h.Quantile(50)), micros(h.Mean()), micros(h.StdDev()), micros(h.Quantile(99)), micros(h.Quantile(99.9)))
	}
	b.WriteString(rule)
}

// writeTransfers writes the table of bandwidths and message rates.
func (r *Report) writeTransfers(b *strings.Builder) {
	r.writeHeader(b, r.title())
	unit, scale := "MB/sec", float64(1<<20)
	if r.Gigabits {
		unit, scale = "Gb/sec", 1e9/8
	}
	fmt.Fprintf(b, " #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n", unit, unit)
	for i := range r.Rows {
		row := &r.Rows[i]
		perS, size := row.Transfer.PerS(), float64(row.Bytes)
		fmt.Fprintf(b, " %-10d %-14.0f %-18.2f %-20.2f %.6f\n", row.Bytes, row.Transfer.Messages,
			max(row.Transfer.PeakPerS, perS)*size/scale, perS*size/scale, perS/1e6)
	}
	b.WriteString(rule)
}
