package engine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// quirkCase is a short conversation with a NIC. What the NIC does in it is
// written down, and must read one way of a sound NIC and another way of one
// with the quirk.
type quirkCase struct {
	setup  setup
	wraps  bool // PSNs run over the end of their space
	talk   func(*talk)
	sound  string
	flawed string
}

// quirkCases has a conversation for every quirk.
var quirkCases = joined(
	responderQuirks, readQuirks, requesterQuirks, completerQuirks, timerQuirks,
	orderQuirks, executeQuirks, atomicQuirks, ackQuirks, retryQuirks, sinkQuirks, objectQuirks, lateQuirks,
	queueQuirks, stateQuirks, datagramQuirks, portQuirks, congestionQuirks, memoryQuirks, edgeQuirks,
)

func joined(parts ...map[string]quirkCase) map[string]quirkCase {
	all := map[string]quirkCase{}
	for _, part := range parts {
		for name, c := range part {
			if _, twice := all[name]; twice {
				panic("two conversations for quirk " + name)
			}
			all[name] = c
		}
	}
	return all
}

// quirkNames lists the names of all quirks.
func quirkNames() (names []string) {
	for _, info := range AllQuirks() {
		names = append(names, info.Name)
	}
	return names
}

func TestQuirksMisbehaveAsDocumented(t *testing.T) {
	for _, name := range quirkNames() {
		c, ok := quirkCases[name]
		if !ok {
			t.Errorf("quirk %s has no conversation that shows it: add one to a quirk_*_test.go", name)
			continue
		}
		if c.sound == c.flawed {
			t.Errorf("%s: the conversation would not tell a flawed NIC from a sound one", name)
		}
		t.Run(name+"/off", func(t *testing.T) { c.play(t, "", c.sound) })
		t.Run(name+"/on", func(t *testing.T) { c.play(t, name, c.flawed) })
	}
	for name := range quirkCases {
		if !slices.Contains(quirkNames(), name) {
			t.Errorf("there is a conversation for %s, but no such quirk", name)
		}
	}
}

// play holds the conversation with a NIC that has one quirk or none.
func (c *quirkCase) play(t *testing.T, quirk, want string) {
	fl := flavours[0]
	if c.wraps {
		fl = flavours[1]
	}
	s := c.setup
	s.nic = func(cfg *Config) {
		if quirk != "" {
			if err := cfg.Quirks.Set(quirk, true); err != nil {
				t.Fatal(err)
			}
		}
		if c.setup.nic != nil {
			c.setup.nic(cfg)
		}
	}
	k := &talk{peer: newPeer(t, fl, s)}
	c.talk(k)
	if got := strings.Join(k.log, "; "); got != want {
		t.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(k.log, "\n\t"), strings.ReplaceAll(want, "; ", "\n\t"))
	}
}

// switches lists the fields of a struct of quirks, straight from its type.
func switches(t *testing.T, typ reflect.Type) (names []string) {
	t.Helper()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type.Kind() == reflect.Struct {
			names = append(names, switches(t, f.Type)...)
			continue
		}
		if f.Type.Kind() != reflect.Bool || f.Tag.Get("defect") == "" || f.Tag.Get("does") == "" {
			t.Errorf("%v.%s must be a bool with tags that say whose defect it is and what it does", typ, f.Name)
		}
		names = append(names, f.Name)
	}
	return names
}

func TestQuirkNamesAreTheSwitches(t *testing.T) {
	names := switches(t, reflect.TypeFor[Quirks]())
	if got := quirkNames(); !slices.Equal(got, names) {
		t.Errorf("listed are %q, want %q", got, names)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("of %d names %d are used twice: Set could not tell them apart", len(names), len(names)-len(unique))
	}
}

func TestSetSwitchesOneQuirk(t *testing.T) {
	for _, name := range quirkNames() {
		var q Quirks
		if err := q.Set(name, true); err != nil {
			t.Fatal(err)
		}
		if got := q.Names(); !slices.Equal(got, []string{name}) {
			t.Errorf("after Set(%s), Names() = %q", name, got)
		}
		if err := q.Set(name, false); err != nil || q != (Quirks{}) {
			t.Errorf("Set(%s) back: %v, %q still on", name, err, q.Names())
		}
	}
}

func TestNamesKeepTheOrderOfTheStruct(t *testing.T) {
	q := Quirks{ICRCIgnored: true, AckReqOnResponses: true}
	q.Memory.WindowBounds = true
	if got, want := q.Names(), []string{"AckReqOnResponses", "ICRCIgnored", "WindowBounds"}; !slices.Equal(got, want) {
		t.Errorf("Names() = %q, want %q", got, want)
	}
	if got := new(Quirks).Names(); len(got) != 0 {
		t.Errorf("a sound NIC has quirks %q", got)
	}
}

func TestSetRefusesWhatIsNoQuirk(t *testing.T) {
	for name, hint := range map[string]string{
		"ackskipsread": "did you mean AckSkipsRead?",
		"ForeignInv":   "did you mean ForeignInvalidate?",
		"Memory":       "", // a group, not a switch
		"":             "",
		"Nonsense":     "",
	} {
		var q Quirks
		err := q.Set(name, true)
		if !errors.Is(err, verbs.ErrNotFound) || q != (Quirks{}) {
			t.Errorf("Set(%q) = %v, on: %q", name, err, q.Names())
			continue
		}
		if !strings.HasSuffix(err.Error(), hint) || hint == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("Set(%q) = %q, want the hint %q", name, err, hint)
		}
	}
}
