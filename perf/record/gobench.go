package record

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// goUnits are the units of Go's benchmark format, in which benchfmt gives times and rates.
var goUnits = map[string]Unit{"sec/op": Seconds, "B/s": Bytes, "msgs/s": Messages, "peak-B": Size}

// parseGo parses the output of go test -bench, or of another program in that format. Values in
// units that goUnits lacks, such as allocations, are left out.
func parseGo(name, text string) (*Run, error) {
	run := &Run{Tool: "Go benchmarks"}
	r := benchfmt.NewReader(strings.NewReader(text), name)
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", rec.Line, rec.Msg)
		case *benchfmt.Result:
			for _, v := range rec.Values {
				if unit, ok := goUnits[v.Unit]; ok {
					run.Add(rec.Name.String(), unit, v.Value)
				}
			}
		}
	}
	return run, r.Err()
}

// WriteGo writes the run in Go's benchmark format, for benchstat.
func (r *Run) WriteGo(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	units := map[Unit]string{}
	for name, unit := range goUnits {
		units[unit] = name
	}
	for i := range r.Series {
		s := &r.Series[i]
		for _, v := range s.Samples {
			err := out.Write(&benchfmt.Result{Name: benchfmt.Name(s.Name), Iters: 1, Values: []benchfmt.Value{{Value: v, Unit: units[s.Unit]}}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
