package experiment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf/record"
)

// predictable has the measurement in simulation of each benchmark that has one, by the first part
// of the names of its series.
var predictable = map[string]nics.BaseMeasure{
	"send_lat":     {Program: "send-latency"},
	"write_lat":    {Program: "write-latency"},
	"send_bw":      {Program: "send"},
	"write_bw":     {Program: "write"},
	"read_bw":      {Program: "read"},
	"osu_latency":  {Workload: "pingpong"},
	"imb_pingpong": {Workload: "pingpong"},
}

// Predicts reports whether [Predict] can predict a series.
func Predicts(s *record.Series) bool {
	_, err := measureOf(s)
	return err == nil
}

// Predict returns the value of a series on a platform, by simulation.
func Predict(p *nics.Platform, s *record.Series) (float64, error) {
	m, err := measureOf(s)
	if err != nil {
		return 0, err
	}
	b := nics.BaseFigure{Unit: "MB/s", Measure: m}
	scale := 1e6
	switch s.Unit {
	case record.Seconds:
		b.Unit, scale = "us", 1e-6
	case record.Messages:
		scale = 1e6 / float64(m.Bytes)
	case record.Bytes, record.Size:
	}
	v, err := MeasureBase(p, &b)
	if err != nil {
		return 0, fmt.Errorf("%s on %s: %w", s.Name, p.Name, err)
	}
	return v * scale, nil
}

// measureOf returns how a series is measured in simulation. An error says why it cannot be. A
// latency test and a workload (pingpong) have series of times, other tests have series of rates.
func measureOf(s *record.Series) (*nics.BaseMeasure, error) {
	parts := strings.Split(s.Name, "/")
	m, known := predictable[parts[0]]
	if !known {
		return nil, fmt.Errorf("%s: the simulation has no such benchmark", s.Name)
	}
	for _, part := range parts[1:] {
		key, text, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(text)
		switch {
		case key == "bytes" && err == nil:
			m.Bytes = max(n, 1)
		case key == "qps" && err == nil && m.Program != "":
			m.QPs = n
		case key == "ranks" && n == 2:
		default:
			return nil, fmt.Errorf("%s: the simulation has no %s", s.Name, part)
		}
	}
	latency := strings.HasSuffix(m.Program, "latency") || m.Workload != ""
	if m.Bytes == 0 || latency != (s.Unit == record.Seconds) {
		return nil, fmt.Errorf("%s in %s: the simulation has no such series", s.Name, s.Unit)
	}
	if m.Program == "write-latency" {
		m.Bytes = (m.Bytes + 7) / 8 * 8 // the program writes words
	}
	return &m, nil
}
