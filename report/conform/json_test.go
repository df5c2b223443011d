package conform_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"reflect"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

var update = flag.Bool("update", false, "rewrite schema.json and the golden files in testdata")

func written(t *testing.T, run *conform.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, conform.Write(&b, run))
	return b.Bytes()
}

func TestSchemaMatchesTypes(t *testing.T) {
	text := must.Get(json.MarshalIndent(testutil.Document{
		Value: &conform.Run{}, Version: conform.Version, ID: "https://github.com/fabrictest/fabrictest/report/conform/schema.json",
		Title:    "conformance.json: what a judgement of devices leaves behind",
		Enums:    map[reflect.Type]any{reflect.TypeFor[conform.Verdict](): conform.Verdicts()},
		Packages: []string{".", ".."},
	}.Schema(t), "", "  "))(t)
	text = append(text, '\n')
	testutil.Golden(t, "schema.json", text, *update)
	if !*update && !bytes.Equal(conform.Schema(), text) {
		t.Error("Schema() is not the file")
	}
}

func TestWriteReadRoundTrip(t *testing.T) {
	s := testutil.CompileSchema(t, conform.Schema())
	for name, run := range map[string]*conform.Run{"everything": sample(), "empty": {}, "bare": {Devices: []conform.Device{{Results: []conform.Result{{Verdict: conform.Pass, Ladder: &conform.Ladder{}}}}}, Documents: []conform.Document{{Sections: []conform.Section{{}}}}}} {
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
		if again := written(t, got); !bytes.Equal(again, text) {
			t.Errorf("%s changed:\n%s\n%s", name, text, again)
		}
	}
}

// What a reader refuses it names, and the schema refuses it as well.
func TestReadErrorNamesKey(t *testing.T) {
	s := testutil.CompileSchema(t, conform.Schema())
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
			t.Errorf("the schema takes a wrong %s", c.key)
		}
	}
	for _, text := range []string{"", "{", "[]", good + "x", `{"version":1}`} {
		if run, err := conform.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q is read as %+v", text, run)
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
		// What can be read can be written, shown, and read again.
		again := must.Get(conform.Read(bytes.NewReader(written(t, run))))(t)
		if !reflect.DeepEqual(asJSON(t, run), asJSON(t, again)) {
			t.Fatalf("%+v\n%+v", run, again)
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
