package testutil

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Hostile is a text of a peer or a file that attacks a reader in a browser or a terminal.
const Hostile = `</script></style></pre></title>--><script>alert(1)</script><img src=x onerror=alert(2)>` +
	"\"'`{{.}}${1}]]>&amp; javascript:alert(3) \x1b[2J\x1b]0;x\x07\x00\xff\u009b31m\x7f\r\u202egnp.exe\u2028"

// AppendToStrings appends a text, such as Hostile, to every string and every map key that can be
// reached from a pointer, to test that output escapes it. It does not change values of maps, nor
// values of the types in except.
func AppendToStrings(pointer any, text string, except ...reflect.Type) {
	appendToStrings(reflect.ValueOf(pointer).Elem(), text, except)
}

// appendToStrings appends text to the strings and map keys in v, but not to values of the types in
// except. It descends into pointers, slices and structs. v must be settable.
func appendToStrings(v reflect.Value, text string, except []reflect.Type) {
	switch {
	case slices.Contains(except, v.Type()):
	case v.Kind() == reflect.String:
		v.SetString(v.String() + text)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		appendToStrings(v.Elem(), text, except)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			appendToStrings(v.Index(i), text, except)
		}
	case v.Kind() == reflect.Map && v.Len() > 0:
		m := reflect.MakeMap(v.Type())
		for it := v.MapRange(); it.Next(); {
			m.SetMapIndex(reflect.ValueOf(it.Key().String()+text), it.Value())
		}
		v.Set(m)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				appendToStrings(v.Field(i), text, except)
			}
		}
	}
}

// CheckTerminal fails the test if a text has characters that control a terminal, other than line
// feeds, or invalid UTF-8.
func CheckTerminal(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && (r == unicode.ReplacementChar || unicode.In(r, unicode.Cc, unicode.Cf))
	}); i >= 0 {
		t.Errorf("control characters in %q", text[max(0, i-80):min(i+20, len(text))])
	}
}

var (
	ids   = regexp.MustCompile(` id="([^"]*)"`)
	links = regexp.MustCompile(`href="#([^"]*)"`)
)

// CheckPage fails the test if an HTML page refers to other resources, has not exactly one script,
// has control characters or marks of failed formatting (ZgotmplZ, %!), uses an ID twice, or links
// to an ID that it does not have. name is for messages.
func CheckPage(t *testing.T, name, page string) {
	t.Helper()
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("%s: %d scripts, want 1", name, n)
	}
	for _, bad := range []string{"<link", "<img", "<iframe", "<object", "@import", "url(", "http://", "https://", `src="`, "ZgotmplZ", "%!"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("%s: %s in …%s…", name, bad, page[max(0, i-80):min(i+40, len(page))])
		}
	}
	if i := strings.IndexFunc(page, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.In(r, unicode.Bidi_Control)
	}); i >= 0 {
		t.Errorf("%s: control characters in %q", name, page[max(0, i-80):min(i+20, len(page))])
	}
	has := map[string]bool{}
	for _, m := range ids.FindAllStringSubmatch(page, -1) {
		if has[m[1]] {
			t.Errorf("%s: two elements have the ID %s", name, m[1])
		}
		has[m[1]] = true
	}
	for _, m := range links.FindAllStringSubmatch(page, -1) {
		if !has[m[1]] {
			t.Errorf("%s: a link refers to the ID %s, which no element has", name, m[1])
		}
	}
}
