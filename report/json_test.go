package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
)

func TestWriteReadRoundTrip(t *testing.T) {
	t.Parallel()
	run := sampleRun()
	got := must.Get(report.Read(bytes.NewReader(written(t, run))))(t)
	if len(got.Scenarios) != len(run.Scenarios) {
		t.Fatalf("%d scenarios of %d", len(got.Scenarios), len(run.Scenarios))
	}
	for i := range run.Scenarios {
		if !reflect.DeepEqual(got.Scenarios[i], run.Scenarios[i]) {
			t.Errorf("%s changed:\n%+v\n%+v", run.Scenarios[i].Name, got.Scenarios[i], run.Scenarios[i])
		}
	}
	got.Scenarios, run.Scenarios = nil, nil
	if !reflect.DeepEqual(got, run) {
		t.Errorf("%+v, want %+v", got, run)
	}
}

// small is a document that every edit below makes invalid.
const small = `{"version":1,"tool":"v1","command":"c","seed":7,"started":"2025-11-15T09:30:12Z","wall":5,
"machine":{"os":"linux","arch":"amd64","cpus":2},"scenarios":[{"name":"a","tier":"sim","seed":7,"verdict":"passed","replay":"r","elapsed":1,"wall":1,
"links":[{"from":"x","to":"y","packets":1,"bytes":2,"lost":{"loss":3}}],
"fabric":{"hosts":[{"name":"h","nics":[{"name":"rdma0","rail":0,"addrs":["fd00::1/64"]}]}],"cables":[]}}]}`

// invalidDocuments returns documents with one error, by the key with the error.
func invalidDocuments(t *testing.T) map[string]string {
	t.Helper()
	edits := []struct{ key, old, new string }{
		{"version", `"version":1`, `"version":2`},
		{"version ", `"version":1,`, ``},
		{"version  ", `"version":1`, `"version":"1"`},
		{"colour", `"tool":"v1"`, `"tool":"v1","colour":"red"`},
		{"seed", `"seed":7,"started"`, `"seed":-7,"started"`},
		{"seed ", `"seed":7,"started"`, `"seed":7.5,"started"`},
		{"seed  ", `"seed":7,"started"`, `"seed":99999999999999999999,"started"`},
		{"started", `"2025-11-15T09:30:12Z"`, `"yesterday"`},
		{"machine", `{"os":"linux","arch":"amd64","cpus":2}`, `null`},
		{"machine.cpus", `,"cpus":2`, ``},
		{"machine.cpus ", `"cpus":2`, `"cpus":"two"`},
		{"machine.OS", `"os":"linux"`, `"OS":"linux"`},
		{"scenarios[0].verdict", `"verdict":"passed"`, `"verdict":"fine"`},
		{"scenarios[0].links", `[{"from":"x","to":"y","packets":1,"bytes":2,"lost":{"loss":3}}]`, `{}`},
		{"scenarios[0].links[0].packets", `"packets":1,`, ``},
		{"scenarios[0].links[0].lost.loss", `"loss":3`, `"loss":"3"`},
		{"scenarios[0].links[0].lost", `{"loss":3}`, `[]`},
		{"twice scenarios[0].links[0].lost.loss", `"loss":3`, `"loss":3,"loss":4`},
		{"twice scenarios[0].name", `"name":"a"`, `"name":"a","name":"b"`},
		{"scenarios[0].fabric.hosts[0].nics[0].addrs[0]", `"fd00::1/64"`, `17`},
	}
	all := map[string]string{}
	for _, e := range edits {
		if strings.Count(small, e.old) != 1 {
			t.Fatalf("%s: %q occurs %d times", e.key, e.old, strings.Count(small, e.old))
		}
		all[e.key] = strings.Replace(small, e.old, e.new, 1)
	}
	return all
}

func TestReadErrorNamesKey(t *testing.T) {
	must.Get(report.Read(strings.NewReader(small)))(t)
	for key, text := range invalidDocuments(t) {
		_, err := report.Read(strings.NewReader(text))
		var ke *report.KeyError
		want := strings.TrimSpace(strings.TrimPrefix(key, "twice "))
		if !errors.As(err, &ke) || ke.Key != want {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestReadRejectsOtherVersion(t *testing.T) {
	_, err := report.Read(strings.NewReader(`{"version":2,"whatever":true}`))
	if !errors.Is(err, report.ErrVersion) || !strings.Contains(err.Error(), "reads version 1") {
		t.Error(err)
	}
}

// TestReadRejectsTruncatedFiles: no prefix of a file is accepted.
func TestReadRejectsTruncatedFiles(t *testing.T) {
	for n := range small {
		if _, err := report.Read(strings.NewReader(small[:n])); err == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(small))
		}
	}
	if _, err := report.Read(strings.NewReader(small + "{}")); err == nil {
		t.Error("two documents are accepted as one")
	}
}

func TestReadFileErrorNamesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	must.Do(t, os.WriteFile(path, []byte("{"), 0o666))
	if _, err := report.ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	must.Do(t, os.WriteFile(path, []byte(small), 0o666))
	if run, err := report.ReadFile(path); err != nil || run.Seed != 7 {
		t.Error(run, err)
	}
}

// TestWriteDoesNotModifyRun: nil lists are written as empty ones, in a copy.
func TestWriteDoesNotModifyRun(t *testing.T) {
	fabric := &topology.Topology{Hosts: []topology.Host{{Name: "h", NICs: []topology.NIC{{Name: "rdma0"}}}, {Name: "i"}}}
	run := &report.Run{Version: report.Version, Scenarios: []report.Result{{Name: "a", Verdict: report.Passed, Fabric: fabric}}}
	text := written(t, run)
	if strings.Contains(string(text), "null") {
		t.Errorf("null in %s", text)
	}
	if fabric.Cables != nil || fabric.Hosts[0].NICs[0].Addrs != nil || fabric.Hosts[1].NICs != nil {
		t.Error("the caller's run was changed")
	}
	if _, err := report.Read(bytes.NewReader(text)); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, text []byte) {
		run, err := report.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		again, err := report.Read(bytes.NewReader(written(t, run)))
		if err != nil || !reflect.DeepEqual(again, run) {
			t.Fatalf("%v: read, written and read again:\n%+v\n%+v", err, run, again)
		}
		if page := html(t, run); strings.Count(page, "<script") != 1 || strings.Contains(page, "ZgotmplZ") {
			t.Fatalf("the page has an injected element:\n%s", page)
		}
		must.Do(t, xml.Unmarshal(junit(t, run), new(parsedJUnit)))
	})
}

var update = flag.Bool("update", false, "rewrite schema.json and the golden files in testdata")

func TestResultsAreValid(t *testing.T) {
	t.Parallel()
	s := compileSchema(t, must.Get(os.ReadFile("schema.json"))(t))
	for name, run := range map[string]*report.Run{"everything": sampleRun(), "hostile": hostileRun(), "empty": {Version: report.Version}} {
		// A validator is slow with samples, which are all alike.
		for i := range run.Scenarios {
			for k := range run.Scenarios[i].Ranks {
				r := &run.Scenarios[i].Ranks[k]
				r.Samples = r.Samples[:min(2, len(r.Samples))]
			}
		}
		doc := must.Get(validator.UnmarshalJSON(bytes.NewReader(written(t, run))))(t)
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSchemaRejectsWhatReadRejects(t *testing.T) {
	s := compileSchema(t, must.Get(os.ReadFile("schema.json"))(t))
	for key, text := range invalidDocuments(t) {
		doc, err := validator.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			continue // not JSON
		}
		if s.Validate(doc) == nil && !strings.HasPrefix(key, "twice ") {
			t.Errorf("the schema accepts a wrong %s", key)
		}
	}
}

func written(t *testing.T, run *report.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.Write(&b, run))
	if !json.Valid(b.Bytes()) {
		t.Fatal("not JSON")
	}
	return b.Bytes()
}
