package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestColumnsLineUp(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, &bytes.Buffer{}, 2, nil)
	for _, o := range []outcome{
		{Service: "UD", Network: "clean", OK: true},
		{
			Service: "RC, SRQ", Network: "reorder, double", Messages: 4_000_000, Delivered: 4_000_000, Bytes: 999 << 30,
			PacketsLost: 999_999, Resent: 999_999, Elapsed: 59 * time.Second, GoodputBps: 1600e9,
		},
	} {
		table.row(&o)
	}
	var ends []int
	for line := range strings.Lines(out.String()) {
		if line == "\n" {
			continue
		}
		// The verdict begins at one place.
		at := strings.LastIndex(line, "  ")
		ends = append(ends, utf8.RuneCountInString(line[:at]))
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	for _, s := range scenarios() {
		if len(s.service) > widths[0] || len(s.network.name) > widths[1] {
			t.Errorf("%s: %q and %q do not fit their columns", s.id, s.service, s.network.name)
		}
	}
	if len(ends) != 3 || ends[0] != ends[1] || ends[1] != ends[2] {
		t.Errorf("verdicts at %v in\n%s", ends, out.String())
	}
}

func TestColourAndProgressOnATerminal(t *testing.T) {
	var out, status bytes.Buffer
	table := &table{w: &out, status: &status, colour: true, total: 2}
	table.progress(0, "rc/clean")
	table.row(&outcome{Service: "RC", Network: "clean", OK: true})
	table.row(&outcome{Service: "RC", Network: "clean"})
	if got := out.String(); !strings.Contains(got, "\x1b[32mok\x1b[0m") || !strings.Contains(got, "\x1b[1;31mFAIL\x1b[0m") {
		t.Errorf("verdicts are not coloured: %q", got)
	}
	if got := status.String(); !strings.Contains(got, "0 of 2 done, waiting for rc/clean") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("progress %q", got)
	}
}

func TestQuantities(t *testing.T) {
	for got, want := range map[string]string{
		byteCount(0):                      "0 B",
		byteCount(999):                    "999 B",
		byteCount(1000):                   "1.0 KiB",
		byteCount(5 << 20):                "5.0 MiB",
		byteCount(3 << 40):                "3072.0 GiB",
		bitRate(1500):                     "1.5 kb/s",
		bitRate(25_400_000):               "25.4 Mb/s",
		bitRate(17e9):                     "17.00 Gb/s",
		bitRate(372.5e9):                  "372.5 Gb/s",
		bitRate(1.6e12):                   "1.60 Tb/s",
		duration(74 * time.Microsecond):   "74.0 µs",
		duration(3550 * time.Microsecond): "3.55 ms",
		duration(999 * time.Millisecond):  "999.0 ms",
		duration(2 * time.Second):         "2.00 s",
		duration(400 * time.Second):       "400 s",
		scenarioCount(1):                  "1 scenario",
		scenarioCount(2):                  "2 scenarios",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
