#pragma once

namespace service_streamer {

// A doubly linked list of objects, without allocation. `Previous` and `Next` are the links that it uses.
template <typename T, T* T::* Previous, T* T::* Next>
class IntrusiveList {
 public:
  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }
  T* last() const { return last_; }

  void push_back(T& object) { insert(object, nullptr); }

  // Inserts before `before`, or at the end if that is nullptr.
  void insert(T& object, T* before) {
    T* after = before != nullptr ? before->*Previous : last_;
    object.*Previous = after;
    object.*Next = before;
    (after != nullptr ? after->*Next : first_) = &object;
    (before != nullptr ? before->*Previous : last_) = &object;
  }

  void erase(T& object) {
    (object.*Previous != nullptr ? object.*Previous->*Next : first_) = object.*Next;
    (object.*Next != nullptr ? object.*Next->*Previous : last_) = object.*Previous;
    object.*Previous = object.*Next = nullptr;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace service_streamer
