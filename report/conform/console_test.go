package conform_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// twoDeviceRun is a run with some verdicts on two devices.
func twoDeviceRun() *conform.Run {
	rows := []conform.Row{{ID: "roce/rc/psn/1"}, {ID: "roce/uc/1"}}
	run := &conform.Run{
		Wall: 1234 * time.Millisecond,
		Documents: []conform.Document{
			{Key: "roce", Title: "RoCEv2", Sections: []conform.Section{{Title: "RC: PSNs", Rows: rows[:1]}, {Title: "UC", Rows: rows[1:]}}},
			{Key: "rfc5044", Title: "RFC 5044", Sections: []conform.Section{{Title: "4.1", Rows: []conform.Row{{ID: "rfc5044/4.1/1"}}}}},
		},
	}
	one := func(id, row string, v conform.Verdict) conform.Result {
		return conform.Result{ID: id, Title: "The device does what " + id + " says", Cite: "IBTA C9-1", Level: "MUST", Rows: []string{row}, Verdict: v, Replay: "fabrictest conform " + id + " --seed 1"}
	}
	roce := conform.Device{Name: "softroce", Results: []conform.Result{
		one("rc/psn/a", "roce/rc/psn/1", conform.Pass), one("rc/psn/b", "roce/rc/psn/1", conform.Fail), one("uc/x/y", "roce/uc/1", conform.Unsupported), one("q/q/q", "nowhere", conform.Stale),
		one("rc/psn/c", "roce/rc/psn/1", conform.Deviates), one("uc/x/z", "roce/uc/1", conform.Unsupported),
	}}
	roce.Results[3].Cite = "IBTA, clause not public; row nowhere"
	bad := &roce.Results[1]
	bad.Reason, bad.Want, bad.Got, bad.Capture = "want one, got two\x1b[2J", "one", "two\x1b[2J", "captures/rc/psn/b.pcapng"
	bad.Ladder = new(conform.Ladder)
	for i := range 20 {
		bad.Ladder.Steps = append(bad.Ladder.Steps, conform.Step{At: time.Duration(i) * time.Microsecond, Kind: conform.Received, Text: fmt.Sprintf("ACK psn %d", i)})
	}
	roce.Results[2].Reason, roce.Results[5].Reason = "the device does not claim UC", "the device does not claim UC"
	known := &roce.Results[4]
	known.Want, known.Got, known.Deviation = "one\x1b", "three", "A reason that is so long that it does not fit into a line of a terminal by any means, and so is broken: firmware 7 (seen on\x1b firmware 7)"
	roce.Results[3].Reason = "q/q/q passes: delete its deviation"
	roce.DefectChecks = []conform.DefectCheck{{Defect: "A", Caught: []string{"rc/psn/a"}}, {Defect: "B"}, {Defect: "C", Excused: "this bench cannot test it"}}
	run.Faults = []conform.Fault{{Kind: conform.Uncaught, Device: "softroce", Defect: "B", What: "no case detects B"}}
	run.Devices = []conform.Device{roce, {Name: "softiwarp", As: "siw-6.12", Results: []conform.Result{one("mpa/x/y", "rfc5044/4.1/1", conform.Pass)}}}
	return run
}

func display(t *testing.T, cfg report.DisplayConfig, ladders bool, run *conform.Run) {
	t.Helper()
	d := conform.NewDisplay(cfg, ladders)
	for i := range run.Devices {
		for j := range run.Devices[i].Results {
			r := &run.Devices[i].Results[j]
			d.Start(r.ID)
			d.Done(r.ID, r)
		}
	}
	d.Start("rc/psn/a with B")
	d.End("rc/psn/a with B")
	must.Do(t, d.Finish(run, report.Paths{HTML: "runs/7/report.html", Result: "runs/7/conformance.json"}))
}

func TestVerdictsAreGolden(t *testing.T) {
	var out, status bytes.Buffer
	display(t, report.DisplayConfig{Out: &out, Status: &status}, false, twoDeviceRun())
	testutil.Golden(t, "testdata/verdicts.golden", out.Bytes(), *update)
	if status.Len() > 0 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("progress or colours without a terminal: %q", status.String())
	}
	// With one device, every section is printed.
	run := twoDeviceRun()
	run.Devices, run.Faults = run.Devices[:1], nil
	run.Devices[0].Results = run.Devices[0].Results[:1]
	run.Devices[0].DefectChecks = nil
	out.Reset()
	display(t, report.DisplayConfig{Out: &out, Status: &status}, true, run)
	testutil.Golden(t, "testdata/verdicts-passing.golden", out.Bytes(), *update)
}

func TestTextsAreEscapedForTerminal(t *testing.T) {
	var out bytes.Buffer
	display(t, report.DisplayConfig{Out: &out}, true, hostileRun())
	testutil.CheckTerminal(t, out.String())
}

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func written(t *testing.T, run *conform.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, conform.Write(&b, run))
	return b.Bytes()
}

// compileSchema returns a validator for the schema of a run, which package report generates.
func compileSchema(t *testing.T) *validator.Schema {
	t.Helper()
	doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(must.Get(os.ReadFile("schema.json"))(t))))(t)
	c := validator.NewCompiler()
	c.AssertFormat()
	must.Do(t, c.AddResource("schema.json", doc))
	return must.Get(c.Compile("schema.json"))(t)
}

func TestWriteReadRoundTrip(t *testing.T) {
	s := compileSchema(t)
	for name, run := range map[string]*conform.Run{"sample": sample(), "empty": {Version: conform.Version}, "bare": {Version: conform.Version, Devices: []conform.Device{{Results: []conform.Result{{Verdict: conform.Pass, Ladder: &conform.Ladder{}}}}}, Documents: []conform.Document{{Sections: []conform.Section{{}}}}}} {
		text := written(t, run)
		doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(text)))(t)
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := conform.Read(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if rewritten := written(t, got); !bytes.Equal(rewritten, text) {
			t.Errorf("%s changed:\n%s\n%s", name, text, rewritten)
		}
	}
}

// Read names the key that it rejects, and the schema rejects it as well.
func TestReadErrorNamesKey(t *testing.T) {
	s := compileSchema(t)
	good := string(written(t, sample()))
	for _, c := range []struct{ key, old, new string }{
		{"version", `"version":1`, `"version":2`},
		{"version", `"version":1,`, ``},
		{"colour", `"tier":"sim"`, `"tier":"sim","colour":"red"`},
		{"devices[0].name", `"name":"softroce",`, ``},
		{"devices[0].results[0].verdict", `"verdict":"fail"`, `"verdict":"fine"`},
		{"devices[0].results[1].defective[0].verdict", `"defect":"NAKStorm","verdict":"fail"`, `"defect":"NAKStorm","verdict":"fine"`},
		{"devices[0].results[0].ladder.steps[0].at", `"at":8200`, `"at":"soon"`},
		{"documents[0].sections[0].rows", `"rows":[{"id":"roce/rc/psn/1"`, `"rows":null,"x":[{"id":"roce/rc/psn/1"`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%s: nothing was changed", c.key)
		}
		_, err := conform.Read(strings.NewReader(text))
		var ke *report.KeyError
		if !errors.As(err, &ke) || ke.Key != c.key {
			t.Errorf("%s: %v", c.key, err)
		}
		doc := must.Get(validator.UnmarshalJSON(strings.NewReader(text)))(t)
		if s.Validate(doc) == nil {
			t.Errorf("the schema accepts a wrong %s", c.key)
		}
	}
	for _, text := range []string{"", "{", "[]", good + "x", `{"version":1}`} {
		if run, err := conform.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q parses as %+v", text, run)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = conform.Write(&b, sample())
	f.Add(b.Bytes())
	f.Add([]byte(`{"version":1,"devices":[{"results":[]}],"documents":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		run, err := conform.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		// A run that can be read can be written, rendered, and read again.
		rewritten := must.Get(conform.Read(bytes.NewReader(written(t, run))))(t)
		if !reflect.DeepEqual(asJSON(t, run), asJSON(t, rewritten)) {
			t.Fatalf("%+v\n%+v", run, rewritten)
		}
		must.Do(t, errors.Join(conform.WriteHTML(&b, run), conform.WriteJUnit(&b, run)))
		b.Reset()
	})
}

func asJSON(t *testing.T, run *conform.Run) (v any) {
	t.Helper()
	must.Do(t, json.Unmarshal(written(t, run), &v))
	return v
}
