package contract

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"jobledger/ledger"
)

// celNumber returns an int64, a float64 or a hugeNumber. Fractions are as exact as
// a float64; what is whole is exact.
func celNumber(v json.Number) any {
	if n, err := v.Int64(); err == nil {
		return n
	}
	f, err := v.Float64()
	if err != nil || f == 0 && strings.ContainsAny(beforeExponent(v), "123456789") {
		return newHugeNumber(v)
	}
	if f != math.Trunc(f) || f == 0 {
		return f
	}
	exact, ok := new(big.Rat).SetString(v.String()) // not large: f is finite
	if ok && exact.IsInt() && exact.Num().IsInt64() {
		return exact.Num().Int64()
	}
	back, known := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok || exact.IsInt() && (!known || exact.Cmp(back) != 0) {
		return newHugeNumber(v)
	}
	return f
}

func beforeExponent(v json.Number) string {
	digits, _, _ := strings.Cut(strings.ToLower(v.String()), "e")
	return digits
}

// hugeNumber is a number for which CEL has no type, in canonical form: it equals itself, and whatever else is asked of it cannot be
// evaluated.
type hugeNumber string

const tooHuge = "a number is too large or too exact to reckon with"

var hugeNumberType = types.NewOpaqueType("huge_number")

func newHugeNumber(v json.Number) hugeNumber {
	text, err := ledger.Canonical(nil, []byte(v))
	if err != nil { // the document was accepted with it
		panic("contract: the number " + v.String() + ": " + err.Error())
	}
	return hugeNumber(text)
}

// ConvertToNative implements ref.Val.
func (h hugeNumber) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New(tooHuge)
}

// ConvertToType implements ref.Val.
func (h hugeNumber) ConvertToType(ref.Type) ref.Val {
	return types.NewErr(tooHuge)
}

// Equal implements ref.Val.
func (h hugeNumber) Equal(other ref.Val) ref.Val {
	o, ok := other.(hugeNumber)
	return types.Bool(ok && o == h)
}

// Type implements ref.Val.
func (h hugeNumber) Type() ref.Type { return hugeNumberType }

// Value implements ref.Val.
func (h hugeNumber) Value() any { return string(h) }
