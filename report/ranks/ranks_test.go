package ranks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report/ranks"
)

func TestWriteReadRoundTrip(t *testing.T) {
	for name, r := range map[string]*ranks.Run{"job": sampleJob(5), "memory": sampleMemory(t)} {
		dir := t.TempDir()
		paths, err := ranks.WriteFolder(dir, r)
		if err != nil || paths.Result != filepath.Join(dir, "ranks.json") || paths.HTML != filepath.Join(dir, "report.html") {
			t.Fatalf("%s: %+v, %v", name, paths, err)
		}
		back := new(ranks.Run)
		if err := json.Unmarshal(must.Get(os.ReadFile(paths.Result))(t), back); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%s: the read run differs, %v", name, err)
		}
		page, err := os.ReadFile(paths.HTML)
		if err != nil || string(page) != html(t, r) {
			t.Errorf("%s: the page differs, %v", name, err)
		}
	}
}

// Row names are unique, except for those of parts of the row above, and the rows of a group
// are adjacent.
func TestRowNamesAreUnique(t *testing.T) {
	seen, groups := map[string]bool{}, map[string]bool{}
	last := ""
	for _, row := range ranks.Rows() {
		if seen[row.Name] && !strings.HasPrefix(row.Name, "  ") || row.Path == "" {
			t.Errorf("%s", row.Name)
		}
		if row.Group != last && groups[row.Group] {
			t.Errorf("%s is not adjacent to its group %s", row.Name, row.Group)
		}
		seen[row.Name], groups[row.Group], last = true, true, row.Group
	}
}

// Every counter of the runtime is a row, or known not to be one.
func TestRowsCoverAllStatistics(t *testing.T) {
	known := map[string]bool{ // part of another row, or for tests only
		"Discarded": true, "Reads": true, "Writes": true, "Atomics": true, "Pieces": true, "Connections": true, "ControlMessages": true,
		"BySize": true, "Now": true, "Invalidated": true, "Bytes": true, "Regions": true, "Retries": true, "ExecutedForPeers": true,
		"Buffers": true, "Chained": true, "FrequentBuffers": true, "UntrackedUses": true, "Stopped": true, "MaxChain": true, "Skipped": true, "CopiedUses": true, "ReusePaysFrom": true,
	}
	var s struct {
		P2P           p2p.Stats
		Window        window.Stats
		NeverReceived uint64
		Carrier       carrier.Stats
	}
	var each func(v reflect.Value, name string)
	each = func(v reflect.Value, name string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				each(v.Field(i), v.Type().Field(i).Name)
			}
			return
		case reflect.Array:
			for i := range v.Len() {
				each(v.Index(i), name)
			}
			return
		case reflect.Bool, reflect.Slice, reflect.Float64: // thresholds and shares, not counters
			return
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		if v.CanUint() {
			v.SetUint(77)
		} else {
			v.SetInt(77)
		}
		if shown := len(ranks.Totals([]ranks.Values{values(s)})) > 0; !shown && !known[name] {
			t.Errorf("%s is counted, but has no row", name)
		}
		v.Set(old)
	}
	each(reflect.ValueOf(&s).Elem(), "")
}

// The report knows the runtime's names without linking it.
func TestNamesMatchRuntime(t *testing.T) {
	named := map[string]bool{}
	for _, row := range ranks.Rows() {
		named[row.Name] = true
	}
	for i := range (carrier.Stats{}).Packets {
		if name := "packets by " + carrier.Transport(i).String(); !named[name] {
			t.Errorf("no row %q", name)
		}
	}
	for i := range (memory.Usage{}).Max {
		if name := "memory of " + memory.Kind(i).String(); !named[name] {
			t.Errorf("no row %q", name)
		}
	}
	text := html(t, sampleMemory(t))
	for i, d := range carrier.Designs() {
		if !strings.Contains(text, fmt.Sprintf(`<li><i class="k%d"></i>%s</li>`, i, d)) {
			t.Errorf("design %d is not %s on the page", i, d)
		}
	}
	// Reading a measurement of the runtime keeps all fields.
	p := work.MemoryPoint{Workload: "cg", Design: carrier.UD, Rank0Only: true, Memory: work.Memory{Ranks: 4, Kinds: []work.Kind{{Name: "rings"}}, Unexpected: 0.5}}
	var read ranks.Point
	text = string(encoded(t, p))
	if err := json.Unmarshal([]byte(text), &read); err != nil || string(encoded(t, read)) != text {
		t.Errorf("%s, %v, want %s", encoded(t, read), err, text)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text := must.Get(json.Marshal(v))(t)
	return text
}

func TestJobPage(t *testing.T) {
	text := html(t, sampleJob(9))
	for _, want := range []string{
		"bt --class S on 9 ranks succeeded", "1 rank of 9 reported no statistics", "Messages by size", "RTRs", "Registration and buffer reuse",
		"7,200 of 8,000", "1,000 of 4,000", "rank 8: ", "low watermarks", "80 %", "from 16 KiB", "All statistics",
		"Arrival at collective operations", "<th>alltoall</th><td>22<td>2.0 MiB<td>800 ms<td>597<td>2.40 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	r := sampleJob(300)
	r.Job.Code = 3
	for _, want := range []string{"on 300 ranks failed: exit code 3", "a column is the maximum of 3 ranks"} {
		if text := html(t, r); !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	r.Job.Stats = make([]ranks.Values, 300)
	if text := html(t, r); !strings.Contains(text, "300 ranks of 300 reported no statistics") || strings.Contains(text, "All statistics") {
		t.Error("a page without content")
	}
}

func TestMemoryPage(t *testing.T) {
	r := sampleMemory(t)
	text := html(t, r)
	for _, want := range []string{
		"with 4 to 1024 ranks", "All-to-all", "Hollow points, from 128 ranks on", "ring-srq, 1024 ranks: ", "95 receives per connection",
		// From Table 6.1: (2,577,276 - 1,815,192) pages of 4 KB, of 64 processes; and CG.
		"48.8 MB", "6.6 MB", "2577276 and 1815192", "29.6 %", "30.7 %",
		// From the sample: 63 connections of 800 KB.
		"49.0 MB", "50.4 MB",
		// From Sur 2006, and from the sample: seven times (200 KB per partner and half a ring).
		"about 10", "38.1 %", "500 KB", "12.5 %",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if n := strings.Count(text, `class="dot one"`); n != 6*4 {
		t.Errorf("%d points of one rank, want those of six designs at 128 to 1024", n)
	}
	r.Memory = r.Memory[1:2] // only published values of connections
	if text := html(t, r); strings.Contains(text, "Memory by number of ranks") || !strings.Contains(text, "Connections and datagrams, compared") {
		t.Error("the page has other experiments")
	}
}

// A page loads no other files, also if every text contains HTML.
func TestPageIsSelfContained(t *testing.T) {
	for name, r := range map[string]*ranks.Run{"job": sampleJob(3), "memory": sampleMemory(t)} {
		testutil.CheckPage(t, name, html(t, r))
		testutil.AppendToStrings(r, testutil.Hostile)
		testutil.CheckPage(t, "hostile "+name, html(t, r))
	}
}
