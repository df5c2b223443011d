package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/lab"
)

// What --quirk takes, the list and the documentation must agree.
func TestQuirksListsAllThatRunTakes(t *testing.T) {
	docs, err := os.ReadFile("../../docs/quirks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, plain, _ := call(t, "quirks")
	_, out, _ := call(t, "quirks", "--json")
	var listed []lab.FlawInfo
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != len(lab.AllFlaws()) {
		t.Fatalf("%d quirks, %v", len(listed), err)
	}
	var all lab.Flaws
	for _, q := range listed {
		if err := all.Set(strings.Replace(q.Name, "=N", "=3", 1)); err != nil {
			t.Errorf("%s is listed and not taken: %v", q.Name, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(q.Name, "cm."), "=N")
		imitates := q.Defect
		if imitates == "" {
			imitates = "–"
		}
		if want := "| `" + name + "` | " + imitates + " |"; !strings.Contains(string(docs), want) {
			t.Errorf("docs/quirks.md has no line %q", want)
		}
		if q.Does == "" || !strings.Contains(plain, q.Name+" ") || !strings.Contains(plain, q.Does) {
			t.Errorf("%s: %q, or it is not in the plain list", q.Name, q.Does)
		}
	}
	if got := len(all.NIC.Names()) + strings.Count(plain, "\ncm."); got != len(listed) {
		t.Errorf("%d quirks listed, %d switched on", len(listed), got)
	}
	// Every switch of the connection manager is on now.
	v := reflect.ValueOf(all.CM)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() != reflect.Struct && f.IsZero() {
			t.Errorf("cm.Quirks.%s is not listed", v.Type().Field(i).Name)
		}
	}
	if all.CM.StopAfterConns != 3 || all.CM.DetourLocal != (cm.Quirks{}).DetourLocal {
		t.Errorf("%+v", all.CM)
	}
}
