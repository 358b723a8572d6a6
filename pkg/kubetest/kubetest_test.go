package kubetest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

var errRefused = errors.New("refused")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestWritesNamesEveryWriteAndNoRead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := fake.NewClientset(pod("a"))
	pods := client.CoreV1().Pods("ns")
	_, err := pods.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = pods.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, pod("b"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "c-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.UpdateStatus(ctx, pod("b"), metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = pods.Patch(ctx, "b", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(ctx, "b", metav1.DeleteOptions{}))
	require.NoError(t, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	var got []string
	for _, w := range Writes(client) {
		got = append(got, w.String())
	}
	assert.Equal(t, []string{
		"create pods ns/b",
		"create pods ns/c-",
		"update pods/status ns/b",
		"patch pods ns/b",
		"delete pods ns/b",
		"delete-collection pods ns/",
		"create nodes /n",
	}, got)
}

func TestAssertWrites(t *testing.T) {
	t.Parallel()
	createA := Action{Verb: "create", Resource: "pods", Namespace: "ns", Name: "a"}
	createB := Action{Verb: "create", Resource: "pods", Namespace: "ns", Name: "b"}
	tests := []struct {
		name       string
		want       []Action
		wantFailed bool
	}{
		{name: "same writes in another order", want: []Action{createB, createA}},
		{name: "write not in want", want: []Action{createA}, wantFailed: true},
		{name: "write in want is missing", want: []Action{createA, createB, createB}, wantFailed: true},
		{name: "different name", want: []Action{createA, {Verb: "create", Resource: "pods", Namespace: "ns", Name: "c"}}, wantFailed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			create(t, client, "a", "b")
			recorded := &recordedTB{TB: t}
			AssertWrites(recorded, client, tt.want...)
			assert.Equal(t, tt.wantFailed, recorded.failed)
		})
	}
}

func TestWaitForWritesWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		go func() {
			time.Sleep(Patience / 2)
			_, err := client.CoreV1().Pods("ns").Create(t.Context(), pod("a"), metav1.CreateOptions{})
			assert.NoError(t, err)
		}()

		WaitForWrites(t, client, Action{Verb: "create", Resource: "pods", Namespace: "ns", Name: "a"})

		assert.Len(t, Writes(client), 1)
	})
}

func TestWaitForWritesGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorded := &recordedTB{TB: t}
		WaitForWrites(recorded, fake.NewClientset(), Action{Verb: "create"})
		assert.True(t, recorded.failed)
	})
}

func TestFailNextFailsOnlySoManyCalls(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(pod("a"))
	FailNext(client, 2, "update", "pods", errRefused)
	var got []error
	for range 3 {
		_, err := client.CoreV1().Pods("ns").Update(t.Context(), pod("a"), metav1.UpdateOptions{})
		got = append(got, err)
	}
	assert.Equal(t, []error{errRefused, errRefused, nil}, got)
}

func TestFailAlwaysFailsThatVerbOnly(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(pod("a"))
	FailAlways(client, "delete", "*", errRefused)
	for range 3 {
		require.ErrorIs(t, client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}), errRefused)
	}
	_, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestStartInformers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(pod("a"))
		factory := informers.NewSharedInformerFactory(client, 0)
		lister := factory.Core().V1().Pods().Lister()

		StartInformers(t, factory)

		_, err := lister.Pods("ns").Get("a")
		require.NoError(t, err)
		synctest.Wait() // the fake drops what happens before the watch
		create(t, client, "b")
		synctest.Wait()
		_, err = lister.Pods("ns").Get("b")
		assert.NoError(t, err, "changes reach the lister")
	})
}

func TestStartInformersOfDynamicClient(t *testing.T) {
	t.Parallel()
	client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, pod("a"))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	lister := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Lister()

	StartInformers(t, factory)

	objects, err := lister.List(labels.Everything())
	require.NoError(t, err)
	assert.Len(t, objects, 1)
	AssertWrites(t, client)
}

func TestLoadObjects(t *testing.T) {
	t.Parallel()
	objects := LoadObjects(t, scheme.Scheme, "testdata/world.yaml")
	require.Len(t, objects, 2)
	assert.Equal(t, "a", objects[0].(*corev1.Service).Name)
	assert.Equal(t, "d", objects[1].(*corev1.Pod).Spec.Containers[0].Image)
}

func TestDecodeObjectsIsStrict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give, wantErr string
	}{
		{name: "unknown field", give: "apiVersion: v1\nkind: Pod\nspec: {contaners: []}", wantErr: "contaners"},
		{name: "unknown kind", give: "apiVersion: v1\nkind: Pot", wantErr: "Pot"},
		{name: "number of the invalid document", give: "apiVersion: v1\nkind: Pod\n---\napiVersion: v1", wantErr: "document 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeObjects(scheme.Scheme, []byte(tt.give))
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
}

func create(t *testing.T, client *fake.Clientset, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := client.CoreV1().Pods("ns").Create(t.Context(), pod(name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// recordedTB records whether Errorf was called.
type recordedTB struct {
	testing.TB
	failed bool
}

func (r *recordedTB) Errorf(string, ...any) { r.failed = true }
