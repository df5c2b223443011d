package tuning

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// sample has two tables, and every key.
func sample() *File {
	return &File{Version: 1, Tables: []Table{
		{
			Fabric:  Fabric{Tier: "sim", Platform: "p", Provider: "softroce", Topology: Switch, Rails: 2, Cable: None},
			Command: `fabrictest tune --ranks 8 --out "a b.yaml"`,
			Rules: []Rule{
				{Rule: coll.Rule{Operation: "bcast", Ranks: 8, PerHost: 2, From: 16, To: 1023, Algorithm: "chain"}, Gain: 12},
				{Rule: coll.Rule{Operation: "bcast", Ranks: 8, PerHost: 2, From: 1024, Algorithm: "binomial"}},
			},
		},
		{Fabric: Fabric{Tier: "netns"}, Rules: []Rule{{Rule: coll.Rule{Operation: "bcast", Ranks: 8, Algorithm: "linear"}}}},
	}}
}

// A written file is read with the same contents, and has the keys of the schema.
func TestWrittenFileIsReadAgain(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, sample().Write(&b))
	if f := must.Get(Parse(b.Bytes()))(t); !reflect.DeepEqual(f, sample()) {
		t.Errorf("%s\nis read as %+v", &b, f)
	}
	var value any
	must.Do(t, yaml.Unmarshal(b.Bytes(), &value))
	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("schema.json", must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(Schema())))(t)))
	must.Do(t, must.Get(c.Compile("schema.json"))(t).Validate(value))
	asJSON := must.Get(json.Marshal(value))(t)
	if f := must.Get(Parse(asJSON))(t); len(f.Tables) != 2 || f.Tables[0].Rules[0] != sample().Tables[0].Rules[0] {
		t.Errorf("as JSON: %+v", f)
	}
	for _, typ := range []any{File{}, Table{}, Fabric{}, Rule{}, coll.Rule{}} {
		for field := range reflect.TypeOf(typ).Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); name != "" && !bytes.Contains(Schema(), []byte(`"`+name+`": {`)) {
				t.Errorf("the schema has no key %s", name)
			}
		}
	}
}

// Only the tables whose keys are those of the fabric have rules for it.
func TestRulesOfTheFabric(t *testing.T) {
	for _, c := range []struct {
		where Fabric
		want  []string
	}{
		{sample().Tables[0].Fabric, []string{"chain", "binomial"}},
		{Fabric{Tier: "netns", Provider: "softiwarp", Cable: "veth"}, []string{"linear"}},
		{Fabric{Tier: "sim", Platform: "p", Provider: "softroce", Topology: Switch, Rails: 1, Cable: None}, nil},
	} {
		var got []string
		for _, r := range sample().RulesOn(&c.where) {
			got = append(got, r.Algorithm)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.where, got, c.want)
		}
	}
}

// An error names the line.
func TestErrorsNameTheLine(t *testing.T) {
	const head = "version: 1\ntables:\n  - rules:\n      - {operation: bcast, ranks: 8, to: 99, algorithm: chain}\n"
	for text, want := range map[string]string{
		"":                       "line 1: the file is empty",
		"# nothing\nversion: 2":  "line 2: version 2: give 1",
		"version: 1\ntable: []":  "line 2: field table not found",
		"version: 1\n tables: [": "line 2",
		head + "      - {operation: bcast, ranks: 8, algorithm: bruck}\n":         `line 5: algorithm "bruck" of bcast is none of`,
		head + "\n      - {operation: bcat, ranks: 8, algorithm: chain}\n":        `line 6: operation "bcat" is none of`,
		head + "      - {operation: bcast, ranks: 8, from: 99, algorithm: chain}": "line 5: the rule has sizes of that in line 4",
		head + "      - {operation: bcast, ranks: many, algorithm: chain}":        "line 5: cannot unmarshal !!str `many` into int",
		head + "      - {operation: bcast, rank: 8, algorithm: chain}":            "line 5: field rank not found",
		head + "    rules: []\n": "line 5: mapping key \"rules\" already defined",
		"version: 1\ntables:\n  - &a {rules: [{operation: x}]}\n  - *a\n":           `line 3: operation "x" is none of`,
		"version: 1\ntables:\n  - {rules: []}\n  - <<: {rules: [{operation: x}]}\n": `line 4: operation "x" is none of`,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}

// Two files may have rules for a fabric, but not for the same calls.
func TestRulesInSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, rule string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("version: 1\ntables: [{rules: ["+rule+"]}]\n"), 0o600))
		return path
	}
	a, b := write("a", "{operation: bcast, ranks: 8, algorithm: chain}"), write("b", "{operation: bcast, ranks: 4, algorithm: chain}")
	if all, err := RulesIn([]string{a, b}, &Fabric{}); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := RulesIn([]string{a, a}, &Fabric{}); err == nil || !strings.Contains(err.Error(), "a: several tables") {
		t.Error(err)
	}
	if _, err := RulesIn([]string{filepath.Join(dir, "none")}, &Fabric{}); err == nil {
		t.Error("a file that does not exist is read")
	}
}
