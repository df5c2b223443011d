package scenarios

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// form is the written form of a value.
type form int

const (
	formSection form = iota
	formMap
	formList
	formText
	formBool
	formNumber
	formDecimal
	formSize
	formPercent
	formRate
	formDuration
)

// formOf returns the form that values of a type have in a scenario file. tag is the field's tag.
func formOf(t reflect.Type, tag reflect.StructTag) form {
	switch {
	case t.Kind() == reflect.Pointer:
		return formOf(t.Elem(), tag)
	case t == reflect.TypeFor[time.Duration]():
		return formDuration
	case t == reflect.TypeFor[Percent]():
		return formPercent
	case t == reflect.TypeFor[Rate]():
		return formRate
	}
	switch t.Kind() {
	case reflect.Struct:
		return formSection
	case reflect.Map:
		return formMap
	case reflect.Slice:
		return formList
	case reflect.String:
		return formText
	case reflect.Bool:
		return formBool
	case reflect.Float64:
		return formDecimal
	}
	if t == reflect.TypeFor[Bytes]() || tag.Get("unit") == "bytes" {
		return formSize
	}
	return formNumber
}

// describeType describes the values that a key accepts.
func describeType(t reflect.Type, tag reflect.StructTag) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch formOf(t, tag) {
	case formSection:
		names := fieldsOf(t).names()
		if len(names) > 3 {
			names = append(names[:3:3], "…")
		}
		return "a section with the keys " + strings.Join(names, ", ")
	case formMap:
		return "keys with a value each"
	case formList:
		return "a list, such as [a, b]"
	case formBool:
		return "true or false"
	case formNumber:
		// The only value of a key such as version helps if the key is missing. Other ranges are in
		// the errors of checkRange.
		if least, most, ok := rangeOf(tag); ok && least == most {
			return strconv.FormatInt(least, 10)
		}
		return "a whole number"
	case formDecimal:
		return "a number, such as 12.7"
	case formSize:
		return "a size, such as 4096 or 4KiB"
	case formPercent:
		return "a percentage, such as 0.1%"
	case formRate:
		return "a rate, such as 25Gbit"
	case formDuration:
		return "a time, such as 10ms"
	}
	if words := enumOf(tag); len(words) > 0 {
		return "one of " + strings.Join(words, ", ")
	}
	return "text"
}

// decodeScalar decodes a scalar into v and checks it against the tag of its field.
func decodeScalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag) error {
	switch formOf(v.Type(), tag) {
	case formDuration:
		d, err := parseDuration(n.Value)
		v.SetInt(int64(d))
		return err
	case formPercent, formRate:
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value))
	case formSize:
		var b Bytes
		if n.ShortTag() == "!!int" {
			if err := n.Decode((*int64)(&b)); err != nil {
				return fmt.Errorf("%s is too large a size", quoteShort(n.Value))
			}
		} else if err := b.UnmarshalText([]byte(n.Value)); err != nil {
			return err
		}
		v.SetInt(int64(b))
		return checkRange(int64(b), tag)
	case formText:
		if n.ShortTag() != "!!str" {
			return fmt.Errorf("%s is not text: put it in quotes if it is meant to be", quoteShort(n.Value))
		}
		v.SetString(n.Value)
		return checkText(n.Value, tag)
	case formBool:
		if n.ShortTag() != "!!bool" {
			return fmt.Errorf("%s is neither true nor false", quoteShort(n.Value))
		}
		return n.Decode(v.Addr().Interface())
	case formNumber:
		return decodeNumber(n, v, tag)
	case formDecimal:
		var number float64
		const most = 1e12
		if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&number) != nil || !(math.Abs(number) <= most) { // also for NaN
			return fmt.Errorf("%s is not a number between -1e12 and 1e12", quoteShort(n.Value))
		}
		v.SetFloat(number)
		return nil
	}
	return fmt.Errorf("expected %s, not %s", describeType(v.Type(), tag), quoteShort(n.Value))
}

// decodeNumber decodes an integer into v, and checks its range.
func decodeNumber(n *yaml.Node, v reflect.Value, tag reflect.StructTag) error {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return fmt.Errorf("%q is text: write a whole number, without quotes", n.Value)
	}
	if n.ShortTag() != "!!int" {
		return fmt.Errorf("%s is not a whole number", quoteShort(n.Value))
	}
	if v.CanInt() {
		var i int64
		if n.Decode(&i) != nil {
			return fmt.Errorf("%s is too large a number", quoteShort(n.Value))
		}
		v.SetInt(i)
		return checkRange(i, tag)
	}
	var u uint64
	if n.Decode(&u) != nil {
		return fmt.Errorf("%s is not a whole number from 0 to %d", quoteShort(n.Value), ^uint64(0))
	}
	if err := checkRange(int64(min(u, math.MaxInt64)), tag); err != nil {
		return err
	}
	v.SetUint(u)
	return nil
}

// enumOf returns the values of an enum; none if the tag has no enum.
func enumOf(tag reflect.StructTag) []string { return strings.Fields(tag.Get("enum")) }

// rangeOf returns the smallest and the largest value of the tag "range"; not ok without one.
func rangeOf(tag reflect.StructTag) (least, most int64, ok bool) {
	a, b, ok := strings.Cut(tag.Get("range"), "..")
	if !ok {
		return 0, 0, false
	}
	least, err := strconv.ParseInt(a, 10, 64)
	most, err2 := strconv.ParseInt(b, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		panic(fmt.Sprintf("tag range %q: %v", tag.Get("range"), err))
	}
	return least, most, true
}

// checkRange returns an error if a number is outside the tag "range".
func checkRange(n int64, tag reflect.StructTag) error {
	least, most, ok := rangeOf(tag)
	switch {
	case !ok || least <= n && n <= most:
		return nil
	case least == most:
		return fmt.Errorf("%d is not %d, the only valid value", n, least)
	}
	return fmt.Errorf("%d is not in %d to %d", n, least, most)
}

// checkText checks a string against the enum and the pattern of its tag.
func checkText(word string, tag reflect.StructTag) error {
	if words := enumOf(tag); len(words) > 0 && !slices.Contains(words, word) {
		return fmt.Errorf("%s is none of %s", quoteShort(word), strings.Join(words, ", "))
	}
	if p := tag.Get("pattern"); p != "" && !compilePattern(p).MatchString(word) {
		return fmt.Errorf("%s does not fit: %s", quoteShort(word), tag.Get("hint"))
	}
	return nil
}

var compiledPatterns sync.Map // *regexp.Regexp by its text

// compilePattern compiles each pattern once: compiling takes longer than matching, and
// every run reads all scenarios.
func compilePattern(pattern string) *regexp.Regexp {
	r, ok := compiledPatterns.Load(pattern)
	if !ok {
		r, _ = compiledPatterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return r.(*regexp.Regexp)
}
