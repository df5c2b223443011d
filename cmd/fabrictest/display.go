package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// summary is a run as a whole.
type summary struct {
	Seed     uint64        `json:"seed"`
	Command  string        `json:"command"`          // repeats it
	Quirks   []string      `json:"quirks,omitempty"` // that every NIC has
	Failed   int           `json:"failed"`
	Rows     []outcome     `json:"rows"`
	Captures []captureFile `json:"captures,omitempty"`
	Wall     time.Duration `json:"wall_ns"`
	snapLen  int
}

// display shows a run as it goes.
type display interface {
	// progress says which scenario is waited for.
	progress(done int, id string)
	// row shows a scenario that has ended.
	row(*outcome)
	finish(*summary) error
	// abandon ends a display whose run was broken off.
	abandon()
}

// jsonDisplay prints one JSON document at the end.
type jsonDisplay struct{ w io.Writer }

func (d *jsonDisplay) progress(int, string) {}
func (d *jsonDisplay) row(*outcome)         {}
func (d *jsonDisplay) abandon()             {}

func (d *jsonDisplay) finish(s *summary) error {
	e := json.NewEncoder(d.w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// Quantities, right-aligned by whoever prints them.

func byteCount(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

func bitRate(bps uint64) string {
	switch {
	case bps >= 1e12:
		return fmt.Sprintf("%.2f Tb/s", float64(bps)/1e12)
	case bps >= 100e9:
		return fmt.Sprintf("%.1f Gb/s", float64(bps)/1e9)
	case bps >= 1e9:
		return fmt.Sprintf("%.2f Gb/s", float64(bps)/1e9)
	case bps >= 1e6:
		return fmt.Sprintf("%.1f Mb/s", float64(bps)/1e6)
	default:
		return fmt.Sprintf("%.1f kb/s", float64(bps)/1e3)
	}
}

func duration(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
}
