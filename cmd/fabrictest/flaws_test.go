package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/cm"
)

// What --quirk takes, the list and the documentation must agree.
func TestQuirksListsAllThatRunTakes(t *testing.T) {
	docs, err := os.ReadFile("../../docs/quirks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, plain, _ := call(t, "quirks")
	_, out, _ := call(t, "quirks", "--json")
	var listed []flawInfo
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != len(allFlaws()) {
		t.Fatalf("%d quirks, %v", len(listed), err)
	}
	var all flaws
	for _, q := range listed {
		if err := all.set(strings.Replace(q.Name, "=N", "=3", 1)); err != nil {
			t.Errorf("%s is listed and not taken: %v", q.Name, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(q.Name, managerPrefix), "=N")
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
	if got := len(all.nic.Names()) + len(managerFlaws); got != len(listed) {
		t.Errorf("%d quirks listed, %d switched on", len(listed), got)
	}
	// Every switch of the connection manager is on now.
	v := reflect.ValueOf(all.cm)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() != reflect.Struct && f.IsZero() {
			t.Errorf("cm.Quirks.%s is not listed", v.Type().Field(i).Name)
		}
	}
	if all.cm.StopAfterConns != 3 || all.cm.DetourLocal != (cm.Quirks{}).DetourLocal {
		t.Errorf("%+v", all.cm)
	}
}

// A flawed connection manager must be found out by the calls.
func TestManagerFlawsFail(t *testing.T) {
	for spec, want := range map[string]string{
		"cm.IgnoreREQ":            "call 0, connecting: connect",
		"cm.StopAfterConns=3":     "call 3, connecting: connect",
		"cm.LeakTimeWait":         "limit reached",
		"cm.IgnoreUnknownService": "where nobody listens: want a refusal",
		"cm.RejectWithoutCommID":  "where nobody listens: want a refusal",
		"cm.SIDRZeroQKey":         "its Q_Key is 0x0",
	} {
		code, out, _ := call(t, "run", "--seed", "1", "--messages", "100", "rc-cm/clean", "--quirk", spec)
		if code != exitFailed || !strings.Contains(out, want) || !strings.HasPrefix(out, "every NIC has: "+spec+"\n") {
			t.Errorf("%s: exit code %d, no %q in\n%s", spec, code, want, out)
		}
		if !strings.Contains(out, "rc-cm/clean --seed 1 --messages 100 --quirk "+spec+"\n") {
			t.Errorf("%s: no command in\n%s", spec, out)
		}
	}
	code, out, _ := call(t, "run", "--seed", "1", "rc-cm/reorder", "--quirk", "cm.DuplicateREQSecondConn")
	if code != exitFailed || !strings.Contains(out, "a request for") {
		t.Errorf("a doubled request: exit code %d\n%s", code, out)
	}
}

// A flaw that nothing shows is said to be there all the same.
func TestFlawThatDoesNotShowIsNamed(t *testing.T) {
	args := []string{"run", "--seed", "1", "--messages", "5", "ud/clean", "--quirk", "AckSkipsRead", "--quirk", "cm.NoMRA"}
	code, out, _ := call(t, args...)
	if code != exitOK || !strings.Contains(out, "The scenario held") || !strings.Contains(out, "Held in spite of AckSkipsRead, cm.NoMRA: not visible in this traffic.") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	_, out, _ = call(t, append(args, "--json")...)
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Quirks) != 2 || s.Quirks[1] != "cm.NoMRA" {
		t.Errorf("%v, quirks %q", err, s.Quirks)
	}
}

// A row that fails says what was asked for, not how far it came.
func TestFailingRowShowsWhatWasAskedFor(t *testing.T) {
	for _, tc := range [][]string{{"rc/loss", "AckSkipsRead"}, {"rc-cm/clean", "cm.StopAfterConns=3"}} {
		_, out, _ := call(t, "run", "--seed", "1", "--messages", "60", tc[0], "--quirk", tc[1], "--json")
		var s summary
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err)
		}
		if r := s.Rows[0]; r.OK || r.Messages != 4*60 || r.Delivered == 0 || r.Delivered >= r.Messages || r.Bytes == 0 {
			t.Errorf("%v: %d of %d delivered, %d bytes, ok %v; want fewer than %d", tc, r.Delivered, r.Messages, r.Bytes, r.OK, 4*60)
		}
	}
}
